// The thread budget of the process, shared fairly by concurrent runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace mgx {

int available_threads(); // the number that affinity, the control group and MGX_CPU_THREADS allow
int thread_count();
void set_thread_count(int count);

// The calling thread's team size while in scope.
class TeamSize {
public:
    explicit TeamSize(int threads);
    ~TeamSize();
    TeamSize(const TeamSize &) = delete;
    TeamSize &operator=(const TeamSize &) = delete;

private:
    int before_;
};

// Calls `work` once it has a share of the threads, in order of arrival: one thread each if there are at least as many runs as
// threads, else all.  A queued run may be executed by a pool thread (`movable`); exceptions are passed on.  A run
// inside a run (from a host step) uses the share of the outer one.
void with_share(bool movable, const std::function<void(int threads)> &work);

// Calls work(0) to work(count - 1), several at a time on threads of their own (no team of OpenMP's); the first exception is
// passed on once all are done.
void side_by_side(size_t count, const std::function<void(size_t)> &work);

void handle_forks(); // a forked child has no team: it works on one thread

} // namespace mgx
