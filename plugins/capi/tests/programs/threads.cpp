/* Threads that share a program: argv[1] threads for argv[2] seconds, each checking its own results; memory must not grow in the
   second half by argv[3] KB. */
#include <migraphx/migraphx.hpp>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "check.hpp"

static long resident()
{
    std::ifstream file("/proc/self/statm");
    long size, pages;
    file >> size >> pages;
    return pages * 4;
}

int main(int, char** argv)
{
    migraphx::shape s{migraphx_shape_float_type, {64, 64}};
    migraphx::program p;
    auto m = p.get_main_module();
    auto x = m.add_parameter("x", s);
    auto dot = m.add_instruction(migraphx::operation("dot"), {x, x});
    m.add_return({m.add_instruction(migraphx::operation("relu"), {dot})});
    p.compile(migraphx::target("cpu"));
    std::atomic<long> runs{0};
    std::atomic<int> wrong{0};
    auto begin = std::chrono::steady_clock::now();
    auto end = begin + std::chrono::duration<double>(std::atof(argv[2]));
    std::vector<std::thread> all;
    long at_half = 0;
    for (int t = 0; t < std::atoi(argv[1]); ++t)
        all.emplace_back([&, t] {
            std::vector<float> values(64 * 64, static_cast<float>(t + 1));
            while (std::chrono::steady_clock::now() < end) {
                auto result = p.eval({{"x", migraphx::argument(s, values.data())}});
                const float* got = reinterpret_cast<const float*>(result[0].data());
                for (int i = 0; i < 64 * 64; i += 97) wrong += got[i] != 64.f * (t + 1) * (t + 1);
                ++runs;
            }
        });
    std::this_thread::sleep_for((end - begin) / 2);
    at_half = resident();
    for (auto& thread : all) thread.join();
    long grown = resident() - at_half;
    std::cout << runs << " runs, " << grown << " KB grown" << std::endl;
    CHECK(runs > 0 && wrong == 0 && grown < std::atol(argv[3]));
    return checked();
}
