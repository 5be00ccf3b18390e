#include "threads.h"

#include "openmp.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

namespace mgx {

namespace {

int affinity() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return static_cast<int>(std::thread::hardware_concurrency());
    return std::max(1, CPU_COUNT(&set));
}

// Returns the CPU quota of one cgroup, in CPUs; a large number if it is unlimited.
double quota_v2(const std::string &folder) {
    std::ifstream file(folder + "/cpu.max");
    std::string quota;
    double period = 0;
    if (!(file >> quota >> period) || quota == "max" || period <= 0) return 1e9;
    return std::strtod(quota.c_str(), nullptr) / period;
}

double quota_v1(const std::string &folder) {
    std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
    double quota = 0, period = 0;
    if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return 1e9;
    return quota / period;
}

// Returns the least quota among the cgroup of this process and its ancestors.
double control_group() {
    double limit = std::min(quota_v2("/sys/fs/cgroup"), quota_v1("/sys/fs/cgroup/cpu"));
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        auto first = line.find(':');
        auto second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        bool unified = controllers == ",,";
        if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
        for (std::string path = line.substr(second + 1); path.size() > 1; path.resize(path.rfind('/')))
            limit = std::min(limit, unified ? quota_v2("/sys/fs/cgroup" + path) : quota_v1("/sys/fs/cgroup/cpu" + path));
    }
    return limit;
}

} // namespace

int available_threads() {
    double limit = std::min<double>(affinity(), std::ceil(control_group() - 1e-6));
    if (const char *given = std::getenv("MGX_CPU_THREADS")) {
        long asked = std::strtol(given, nullptr, 10);
        if (asked > 0) limit = std::min<double>(limit, static_cast<double>(asked));
    }
    return std::max(1, static_cast<int>(limit));
}

TeamSize::TeamSize(int threads) : before_(requested_team_size()) { request_team_size(threads); }

TeamSize::~TeamSize() { request_team_size(before_); }

void run_concurrently(size_t count, const std::function<void(size_t)> &work) {
    std::atomic<size_t> next {0};
    std::mutex mutex;
    std::exception_ptr failed;
    auto take = [&] {
        for (size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                std::lock_guard<std::mutex> lock(mutex);
                if (!failed) failed = std::current_exception();
            }
        }
    };
    std::vector<std::thread> others;
    try {
        for (size_t n = 1; n < std::min<size_t>(count, static_cast<size_t>(thread_count())); ++n)
            others.emplace_back(take);
    } catch (const std::exception &) { // proceed with the threads there are
    }
    take();
    for (auto &thread : others)
        thread.join();
    if (failed) std::rethrow_exception(failed);
}

} // namespace mgx
