// Decision tree ensembles (TreeEnsembleRegressor, TreeEnsembleClassifier): every row is evaluated by every tree, and the leaf
// weights are aggregated per target.
#include <algorithm>
#include <cmath>
#include <limits>

#include "box.h"
#include "loops.h"

namespace mgx {

namespace {

constexpr int64_t interleaved = 8; // traversals interleaved to hide the latency of dependent loads
constexpr int64_t block_rows = 64; // rows evaluated by a tree while it is in the cache

// An inner node.  A row continues at `yes` if the outcome of comparing its feature with `split` is in `rule` (bit set of
// Outcome), at `no` otherwise.  Negative successors are leaves: leaf l is -1 - l.
template <typename T>
struct Node {
    T split;
    int32_t feature_and_rule; // feature << 4 | rule
    int32_t yes, no;
};

enum Outcome : int { less = 1, equal = 2, greater = 4, missing = 8 };
enum Aggregate : int64_t { total, mean, minimum, maximum };
enum Transform : int64_t { none, softmax, logistic, softmax_zero, probit };
constexpr double no_vote = std::numeric_limits<double>::quiet_NaN(); // a score's minimum or maximum before the first vote

template <typename T>
struct Ensemble {
    const Node<T> *nodes;
    const int32_t *roots, *starts, *targets; // leaf l has the weights [starts[l], starts[l + 1])
    const double *weights, *base;
    int64_t trees, outputs;
    int64_t aggregate;
    int64_t rule; // rule of all nodes, ignoring `missing`; 0 if they differ
    bool tracks; // true if some node sends NaN to `yes`

    // True if a value continues at `yes`, by the rule `common` to all nodes, or by the node's own if that is 0.
    template <int common>
    static bool takes(const Node<T> &node, T value) {
        const T split = node.split;
        if constexpr (common == less) return value < split;
        if constexpr (common == (less | equal)) return value <= split;
        if constexpr (common == greater) return value > split;
        if constexpr (common == (greater | equal)) return value >= split;
        const int outcome = (value < split) | (value == split) << 1 | (value > split) << 2 | (value != value) << 3;
        return node.feature_and_rule & outcome;
    }

    // Advances the traversals from the nodes `at` to leaves.
    template <int common>
    void walk(const T *const (&x)[interleaved], int32_t (&at)[interleaved]) const {
        auto all_ended = [&] {
            int32_t sign = -1;
            for (int32_t n : at)
                sign &= n;
            return sign < 0;
        };
        while (!all_ended())
            for (int64_t i = 0; i < interleaved; ++i) {
                const Node<T> &node = nodes[std::max(at[i], 0)];
                const int32_t next = takes<common>(node, x[i][node.feature_and_rule >> 4]) ? node.yes : node.no;
                at[i] = at[i] < 0 ? at[i] : next;
            }
    }

    void vote(int32_t leaf, double *scores) const {
        for (int32_t v = starts[-1 - leaf]; v < starts[-leaf]; ++v) {
            double &score = scores[targets[v]];
            if (aggregate == minimum) score = std::fmin(score, weights[v]); // ignores NaN
            else if (aggregate == maximum) score = std::fmax(score, weights[v]);
            else score += weights[v];
        }
    }

    // Computes the scores [count, outputs] of `count` rows.  Each is aggregated in the order of the trees.
    void gather_votes(const T *x, int64_t features, int64_t count, double *scores) const {
        const bool own = tracks && std::any_of(x, x + count * features, [](T value) { return value != value; });
        switch (own ? 0 : rule) {
        case less: return gather_by<less>(x, features, count, scores);
        case less | equal: return gather_by<less | equal>(x, features, count, scores);
        case greater: return gather_by<greater>(x, features, count, scores);
        case greater | equal: return gather_by<greater | equal>(x, features, count, scores);
        default: return gather_by<0>(x, features, count, scores);
        }
    }

    template <int common>
    void gather_by(const T *x, int64_t features, int64_t count, double *scores) const {
        const bool extreme = aggregate == minimum || aggregate == maximum;
        std::fill_n(scores, count * outputs, extreme ? no_vote : 0.0);
        const int64_t whole = count / interleaved * interleaved;
        const T *from[interleaved];
        int32_t at[interleaved];
        for (int64_t t = 0; t < trees && whole; ++t)
            for (int64_t r = 0; r < whole; r += interleaved) {
                for (int64_t i = 0; i < interleaved; ++i) {
                    from[i] = x + (r + i) * features;
                    at[i] = roots[t];
                }
                walk<common>(from, at);
                for (int64_t i = 0; i < interleaved; ++i)
                    vote(at[i], scores + (r + i) * outputs);
            }
        for (int64_t r = whole; r < count; ++r) { // remaining rows: interleave trees instead
            std::fill_n(from, interleaved, x + r * features);
            for (int64_t t = 0; t < trees; t += interleaved) {
                const int64_t some = std::min(interleaved, trees - t);
                for (int64_t i = 0; i < interleaved; ++i)
                    at[i] = i < some ? roots[t + i] : -1;
                walk<common>(from, at);
                for (int64_t i = 0; i < some; ++i)
                    vote(at[i], scores + r * outputs);
            }
        }
        for (int64_t n = 0; n < count * outputs; ++n) {
            if (extreme && std::isnan(scores[n])) scores[n] = 0;
            if (aggregate == mean) scores[n] /= static_cast<double>(std::max<int64_t>(trees, 1));
            scores[n] += base[n % outputs];
        }
    }
};

double sigmoid(double s) {
    const double small = std::exp(-std::fabs(s));
    return (s >= 0 ? 1 : small) / (1 + small);
}

// Returns the quantile of the standard normal distribution: x with P(X <= x) = p.  Two steps of Halley's method on a guess with an
// error of 3e-3 are exact to double precision, since each triples the number of digits.
double normal_quantile(double p) {
    if (!(p > 0 && p < 1)) return p == 0 ? -INFINITY : p == 1 ? INFINITY : std::numeric_limits<double>::quiet_NaN();
    const double tail = std::min(p, 1 - p), t = std::sqrt(-2 * std::log(tail));
    double x = t - (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + t * 0.04481)); // Abramowitz and Stegun 26.2.22
    for (int step = 0; step < 2; ++step) {
        const double excess = 0.5 * std::erfc(x * std::sqrt(0.5)) - tail; // of the probability above x
        const double newton = -excess * std::sqrt(2 * M_PI) * std::exp(0.5 * x * x);
        x -= newton / (1 + 0.5 * x * newton);
    }
    return p < 0.5 ? -x : x;
}

void transform(double *scores, int64_t count, int64_t how) {
    if (how == logistic) std::transform(scores, scores + count, scores, sigmoid);
    if (how == probit) std::transform(scores, scores + count, scores, normal_quantile);
    if (how != softmax && how != softmax_zero) return;
    const double most = *std::max_element(scores, scores + count);
    double total = 0;
    for (int64_t c = 0; c < count; ++c) {
        const bool zero = how == softmax_zero && !(std::fabs(scores[c]) > 1e-7);
        total += scores[c] = zero ? 0 : std::exp(scores[c] - most);
    }
    for (int64_t c = 0; c < count; ++c)
        scores[c] = total != 0 ? scores[c] / total : 0;
}

// Buffers: x [n, features], nodes, roots, first weight of each leaf, targets and values of the weights, base value of each
// output, scores out; classifiers also have labels and labels out.  Arguments: features, trees, outputs, Aggregate, the common
// rule (0: none), 1 if a node sends NaN to `yes`, transform, 1 if there are labels, and -1, except for binary classifiers with
// the weights of one class only: 1 if scores are probabilities, 0 if not.  Scratch memory: scores of `block_rows` rows.  Work
// items: rows.  T: type of features and splits; S: type of scores.
template <typename T, typename S>
void tree_ensemble(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    ArgReader reader(args);
    const int64_t features = reader.next();
    Ensemble<T> ensemble;
    ensemble.nodes = static_cast<const Node<T> *>(buffers[1]);
    ensemble.roots = static_cast<const int32_t *>(buffers[2]);
    ensemble.starts = static_cast<const int32_t *>(buffers[3]);
    ensemble.targets = static_cast<const int32_t *>(buffers[4]);
    ensemble.weights = static_cast<const double *>(buffers[5]);
    ensemble.base = static_cast<const double *>(buffers[6]);
    ensemble.trees = reader.next();
    const int64_t outputs = ensemble.outputs = reader.next();
    ensemble.aggregate = reader.next();
    ensemble.rule = reader.next();
    ensemble.tracks = reader.next();
    const int64_t how = reader.next(), labeled = reader.next(), probabilities = reader.next();
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<S *>(buffers[7]);
    auto *labels = labeled ? static_cast<const int64_t *>(buffers[8]) : nullptr;
    auto *winners = labeled ? static_cast<int64_t *>(buffers[9]) : nullptr;
    auto *sums = static_cast<double *>(scratch);
    for (int64_t first = begin; first < end; first += block_rows) {
        const int64_t count = std::min(block_rows, end - first);
        ensemble.gather_votes(x + first * features, features, count, sums);
        for (int64_t r = 0; r < count; ++r) {
            double *scores = sums + r * outputs;
            if (probabilities >= 0) { // binary classifier with the weights of one class
                const double s = scores[0];
                winners[first + r] = labels[static_cast<S>(s) > (probabilities ? S(0.5) : S(0))]; // compares rounded scores
                scores[0] = how == logistic ? sigmoid(-s) : probabilities || how == probit ? 1 - s : -s;
                scores[1] = how == logistic ? sigmoid(s) : s;
                if (how == probit) transform(scores, 2, probit);
            } else {
                if (labeled) // compares the scores after rounding to S: on ties the first label wins
                    winners[first + r] = labels[std::max_element(scores, scores + outputs, [](double a, double b) {
                        return static_cast<S>(a) < static_cast<S>(b);
                    }) - scores];
                transform(scores, outputs, how);
            }
            std::transform(scores, scores + outputs, out + (first + r) * outputs, [](double s) { return static_cast<S>(s); });
        }
    }
}

} // namespace

void add_tree_loops(NamedLoops &loops) {
    loops["tree_ensemble_float32_float32"] = &tree_ensemble<float, float>;
    loops["tree_ensemble_float64_float32"] = &tree_ensemble<double, float>;
    loops["tree_ensemble_float64_float64"] = &tree_ensemble<double, double>;
}

} // namespace mgx
