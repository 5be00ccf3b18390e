// Thread scheduler: divides the threads of the process among concurrent runs, in order of arrival.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "team.h"
#include "threads.h"

namespace mgx {

namespace {

using Work = std::function<void(int)>;

thread_local int own_threads = 0; // threads granted to the run that this thread executes
bool forked = false;

// A run that waits for threads.
struct QueuedRun {
    enum class State { queued, granted, done };
    const Work *movable; // null: must run on the waiting thread
    int threads = 0;
    State state = State::queued;
    std::exception_ptr failed {};
    std::condition_variable changed {};
};

// Queued runs are executed by a pool of workers rather than by the callers, who only wait for the results: that avoids the
// latency of waking a caller between two runs.
class Scheduler {
public:
    Scheduler() : total_(available_threads()), free_(total_) { pinned_ = sched_getaffinity(0, sizeof cpus_, &cpus_) == 0; }

    int total() {
        std::lock_guard<std::mutex> lock(mutex_);
        return total_;
    }

    void resize(int total) {
        std::lock_guard<std::mutex> lock(mutex_);
        free_ += total - total_;
        total_ = total;
        grant_queued(0, 0);
    }

    void run(bool movable, const Work &work) {
        QueuedRun own {movable ? &work : nullptr};
        {
            std::unique_lock<std::mutex> lock(mutex_);
            int threads = queue_.empty() ? grantable(active_ + 1) : 0;
            if (threads) {
                grant(own, threads);
            } else {
                queue_.push_back(&own);
                grant_queued(0, 0);
                own.changed.wait(lock, [&] { return own.state != QueuedRun::State::queued; });
            }
        }
        if (own.state == QueuedRun::State::done) {
            if (own.failed) std::rethrow_exception(own.failed);
            return;
        }
        struct Release {
            Scheduler &scheduler;
            int threads;
            ~Release() {
                own_threads = 0;
                std::lock_guard<std::mutex> lock(scheduler.mutex_);
                scheduler.give_back(threads, 0);
            }
        } release {*this, own.threads};
        own_threads = own.threads;
        work(own.threads);
    }

private:
    // Returns the threads to grant to a run while `runs` runs are active or queued; 0: it must wait.  With at least as many runs
    // as threads each gets one thread, so that no run waits for parts of another.
    int grantable(size_t runs) const {
        int threads = runs > 1 && runs >= static_cast<size_t>(total_) ? 1 : total_;
        return free_ >= threads ? threads : 0;
    }

    void grant(QueuedRun &run, int threads) {
        free_ -= threads;
        ++active_;
        run.threads = threads;
        run.state = QueuedRun::State::granted;
    }

    void give_back(int threads, size_t workers) {
        free_ += threads;
        --active_;
        grant_queued(1, workers); // assumes that the caller starts its next run at once
    }

    // leaving: callers that are about to return with another run; workers: workers that check the queue right after this call.
    void grant_queued(size_t leaving, size_t workers) {
        while (!queue_.empty()) {
            QueuedRun &next = *queue_.front();
            int threads = grantable(active_ + queue_.size() + leaving);
            if (!threads) return;
            queue_.pop_front();
            grant(next, threads);
            if (next.movable && worker_for_one_more(workers) && queued_for_worker(next)) continue;
            next.changed.notify_one(); // under the lock: afterwards `next` may be destroyed
        }
    }

    bool queued_for_worker(QueuedRun &run) {
        try {
            ready_.push_back(&run);
        } catch (const std::bad_alloc &) {
            return false;
        }
        run.state = QueuedRun::State::queued;
        return true;
    }

    bool worker_for_one_more(size_t looking) {
        if (idle_ > ready_.size()) {
            if (ready_.size() >= looking) wake_.notify_one();
            return true;
        }
        if (workers_ >= static_cast<size_t>(total_)) return false;
        sigset_t all, before; // workers block all signals: they are for the application's threads
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        bool made = true;
        try {
            std::thread([this] { serve(); }).detach(); // until the process exits
        } catch (const std::exception &) {
            made = false;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (!made) return false;
        ++workers_;
        ++idle_;
        return true;
    }

    void serve() {
        if (pinned_) sched_setaffinity(0, sizeof cpus_, &cpus_); // the creating thread may be pinned
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return !ready_.empty(); });
            QueuedRun &run = *ready_.front();
            ready_.pop_front();
            --idle_;
            lock.unlock();
            own_threads = run.threads;
            try {
                (*run.movable)(run.threads);
            } catch (...) {
                run.failed = std::current_exception();
            }
            own_threads = 0;
            lock.lock();
            int threads = run.threads;
            run.state = QueuedRun::State::done;
            run.changed.notify_one();
            ++idle_;
            give_back(threads, 1);
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    cpu_set_t cpus_; // affinity of the thread that loaded the module
    bool pinned_;
    int total_;
    int free_;
    size_t active_ = 0;
    size_t workers_ = 0;
    size_t idle_ = 0; // workers that wait, or have been woken and not yet taken a run from ready_
    std::deque<QueuedRun *> queue_;
    std::deque<QueuedRun *> ready_; // runs with threads granted, to be executed by a worker
};

Scheduler &scheduler() {
    static auto *made = new Scheduler(); // never destroyed: its threads outlive static objects
    return *made;
}

} // namespace

int thread_count() { return scheduler().total(); }

void set_thread_count(int count) { scheduler().resize(count < 1 || forked ? 1 : count); }

void with_share(bool movable, const std::function<void(int threads)> &work) {
    if (own_threads > 0)
        work(own_threads);
    else
        scheduler().run(movable, work);
}

void handle_forks() {
    scheduler();
    pthread_atfork(nullptr, nullptr, [] {
        reset_team();
        new (&scheduler()) Scheduler(); // threads that held grants or the lock exist only in the parent
        scheduler().resize(1);
        own_threads = 0;
        forked = true;
    });
}

} // namespace mgx
