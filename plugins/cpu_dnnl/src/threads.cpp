#include "threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <omp.h>
#include <pthread.h>
#include <sched.h>

namespace mgx {

namespace {

int affinity() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return omp_get_num_procs();
    return std::max(1, CPU_COUNT(&set));
}

// CPUs' worth of time per period that one control group allows; a large number if it does not limit.
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

// The tightest limit of the group of this process and all groups around it.
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

class Gate {
public:
    Gate() : total_(available_threads()), free_(total_) {}

    int total() {
        std::lock_guard<std::mutex> lock(mutex_);
        return total_;
    }

    void resize(int total) {
        std::lock_guard<std::mutex> lock(mutex_);
        free_ += total - total_;
        total_ = total;
        changed_.notify_all();
    }

    int acquire(bool only_all) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (next_ == serving_ && free_ >= total_) {
            free_ -= total_;
            return total_;
        }
        uint64_t ticket = next_++;
        changed_.wait(lock, [&] { return serving_ == ticket && free_ >= (only_all ? total_ : 1); });
        ++serving_;
        int got = only_all ? total_ : 1;
        free_ -= got;
        if (free_ > 0) changed_.notify_all();
        return got;
    }

    void release(int count) {
        std::lock_guard<std::mutex> lock(mutex_);
        free_ += count;
        if (next_ != serving_) changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int total_;
    int free_;
    uint64_t next_ = 0;
    uint64_t serving_ = 0;
};

Gate &gate() {
    static auto *made = new Gate();
    return *made;
}

thread_local int held = 0; // the share of the run that this thread is in

} // namespace

int available_threads() {
    double limit = std::min<double>(affinity(), std::ceil(control_group() - 1e-6));
    if (const char *given = std::getenv("MGX_CPU_THREADS")) {
        long asked = std::strtol(given, nullptr, 10);
        if (asked > 0) limit = std::min<double>(limit, static_cast<double>(asked));
    }
    return std::max(1, static_cast<int>(limit));
}

int thread_count() { return gate().total(); }

void set_thread_count(int count) { gate().resize(std::max(1, count)); }

TeamSize::TeamSize(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
}

TeamSize::~TeamSize() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

Share::Share(bool only_all) : inner_(held > 0) {
    threads_ = inner_ ? held : gate().acquire(only_all);
    held = threads_;
}

Share::~Share() {
    if (inner_) return;
    held = 0;
    gate().release(threads_);
}

void side_by_side(size_t count, const std::function<void(size_t)> &work) {
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
    for (size_t n = 1; n < std::min<size_t>(count, static_cast<size_t>(thread_count())); ++n)
        others.emplace_back(take);
    take();
    for (auto &thread : others)
        thread.join();
    if (failed) std::rethrow_exception(failed);
}

void handle_forks() {
    pthread_atfork(nullptr, nullptr, [] {
        new (&gate()) Gate(); // whoever held shares or the lock exists only in the parent
        gate().resize(1);
        held = 0;
    });
}

} // namespace mgx
