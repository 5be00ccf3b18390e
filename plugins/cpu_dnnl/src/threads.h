// The thread budget of the process, and its division among concurrent runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace mgx {

int available_threads(); // limit by CPU affinity, cgroup quota and MGX_CPU_THREADS
int thread_count();
void set_thread_count(int count);

// Sets the calling thread's team size for oneDNN while in scope.
class TeamSize {
public:
    explicit TeamSize(int threads);
    ~TeamSize();
    TeamSize(const TeamSize &) = delete;
    TeamSize &operator=(const TeamSize &) = delete;

private:
    int before_;
};

// Calls `work` with the number of threads granted to it, in order of arrival: one thread each if there are at least as many runs
// as threads, all threads otherwise.  A queued run that is `movable` may be executed by a pool thread.  Exceptions propagate to
// the caller.  A nested run (from a host step) uses the threads of the outer one.
void with_share(bool movable, const std::function<void(int threads)> &work);

// Calls work(0), .., work(count - 1) concurrently on temporary threads, not on the team.  Rethrows the first exception after all
// calls have returned.
void run_concurrently(size_t count, const std::function<void(size_t)> &work);

void handle_forks(); // installs a fork handler: a forked child has no team and runs on one thread

} // namespace mgx
