// The process's thread team, which executes parts of the runs' steps.
#pragma once

#include <atomic>
#include <cstdint>

namespace mgx {

// The part that the calling thread executes: its index and the number of parts.
struct Seat {
    int index = 0;
    int count = 1;
    bool inside = false; // of several parts
};

Seat &own_seat(); // the calling thread's

// A job of numbered parts.  Each part is executed once, in any order, by the caller or by an idle thread of the team that is awake.
// The caller executes the parts that no thread claims, so it waits only for parts that have started.  Parts must not throw, nor
// wait for each other unless they are gathered.  They run in the caller's floating-point mode.
struct Region {
    void (*part)(void *data);
    void *data;
    int parts;
    bool shared = false;
    unsigned mode = 0; // the caller's floating-point mode
    int64_t began = 0;
    Seat outer {};
};

void open_region(Region &region); // the caller is in the first part from here on
void close_region(Region &region); // it has done it: all parts are done

// Calls body(0) to body(parts - 1).
template <typename Body>
void in_parts(int parts, const Body &body) {
    Region region {[](void *data) { (*static_cast<const Body *>(data))(own_seat().index); }, const_cast<Body *>(&body), parts};
    open_region(region);
    body(0);
    close_region(region);
}

// The least nanoseconds that a step took with the team of late; 0: not tried yet.
struct StepTimes {
    std::atomic<int64_t> together {0};
};

// While in scope, what the calling thread does is one step of a run.  For a while after the team was seen to be late, it stays on
// the calling thread if it is shorter than the time that a processor may be away.
class Stepping {
public:
    Stepping(StepTimes &times, int threads, int64_t now);
    ~Stepping();
    Stepping(const Stepping &) = delete;
    Stepping &operator=(const Stepping &) = delete;

    int64_t finished(); // the step is done: the time

private:
    StepTimes &times_;
    int64_t began_;
    bool outer_alone_;
};

// While in scope, the calling thread and parts of its regions take numbers below the normal range for 0, and make none: an
// operation on one of them takes a processor 100 times longer.
class Flushing {
public:
    Flushing();
    ~Flushing();
    Flushing(const Flushing &) = delete;
    Flushing &operator=(const Flushing &) = delete;

private:
    unsigned before_;
};

bool stepping_alone();
void awaken_team(int threads, int64_t now); // work for so many is to come

// Since the process began: how often waits for threads of the team that did not run took more time than the team had saved, and steps
// that stayed on the calling thread for that.
struct TeamCounts {
    int64_t absences;
    int64_t alone;
};

TeamCounts team_counts();

// While in scope, parts may wait for each other, for which one thread a part has to be there.
class Gathering {
public:
    explicit Gathering(int threads);
    ~Gathering();
    Gathering(const Gathering &) = delete;
    Gathering &operator=(const Gathering &) = delete;
    bool complete() const { return complete_; } // false: the parts of a region would have to be one

private:
    void disband();

    Region held_;
    bool complete_ = false;
};

void wait_for_others(); // a barrier between gathered parts
int64_t nanoseconds_now();
void forget_team(); // in a forked child

} // namespace mgx
