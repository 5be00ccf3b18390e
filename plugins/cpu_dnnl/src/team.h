// The thread team of the process, which executes steps in parallel.
#pragma once

#include <atomic>
#include <cstdint>

namespace mgx {

// The part of a region that the calling thread executes.
struct Seat {
    int index = 0;
    int count = 1;
    bool inside = false; // in a region of several parts: nested regions are serial
};

Seat &own_seat(); // thread-local

// A parallel region of numbered parts.  Each part is executed once, in any order, by the caller or by an idle, awake thread of
// the team.  The caller executes the parts that no thread claims, so it waits only for parts that have started.  Parts must not
// throw, and must not wait for one another except within a Gathering.  They run in the caller's floating-point mode.
struct Region {
    void (*part)(void *data);
    void *data;
    int parts;
    bool shared = false;
    bool in_step = false; // part of a run: more regions follow at once
    unsigned mode = 0; // the caller's MXCSR
    int64_t began = 0;
    Seat outer {};
};

void open_region(Region &region); // publishes the region; the caller then executes part 0
void close_region(Region &region); // called after part 0; returns when all parts are done

// Calls body(0), .., body(parts - 1) as a parallel region.
template <typename Body>
void in_parts(int parts, const Body &body) {
    Region region {[](void *data) { (*static_cast<const Body *>(data))(own_seat().index); }, const_cast<Body *>(&body), parts};
    open_region(region);
    body(0);
    close_region(region);
}

// The least time that a step recently took on the team, in nanoseconds; 0: not measured yet.
struct StepTimes {
    std::atomic<int64_t> together {0};
};

// Marks the scope of one step of a run.  For some time after threads of the team were late, steps shorter than a scheduler time
// slice run on the calling thread alone: waiting for a preempted thread would cost more than the team saves.
class Stepping {
public:
    Stepping(StepTimes &times, int threads, int64_t now);
    ~Stepping();
    Stepping(const Stepping &) = delete;
    Stepping &operator=(const Stepping &) = delete;

    int64_t finished(); // records the duration; returns the current time

private:
    StepTimes &times_;
    int64_t began_;
    bool outer_alone_, outer_in_step_;
};

// While in scope, the calling thread and the parts of its regions treat denormals as 0 (DAZ and FTZ): operations on denormals
// take 100 times longer.
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
void wake_team(int threads, int64_t now); // wakes sleeping threads ahead of parallel work

// Counters since the start of the process.  absences: waits for descheduled threads of the team that cost more time than the team
// had saved; alone: steps that ran on the calling thread alone as a consequence; watches: how often an idle thread began to spin for
// more work, as after the parts of a step, but not after other work, e.g. packing of weights.
struct TeamCounts {
    int64_t absences;
    int64_t alone;
    int64_t watches;
};

TeamCounts team_counts();

// While in scope, parts of regions may use barriers.  That requires one running thread per part, which the constructor waits for
// briefly.
class Gathering {
public:
    explicit Gathering(int threads);
    ~Gathering();
    Gathering(const Gathering &) = delete;
    Gathering &operator=(const Gathering &) = delete;
    bool complete() const { return complete_; } // false: threads are missing, and regions must have one part

private:
    void disband();

    Region held_;
    bool complete_ = false;
};

void team_barrier(); // barrier between the parts of a region within a Gathering
int64_t nanoseconds_now();
void reset_team(); // called in a forked child, which has no threads of the team

} // namespace mgx
