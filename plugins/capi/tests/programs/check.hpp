/* CHECK(condition) counts and prints failures; main returns checked(). */
#include <iostream>

static int failed = 0;
#define CHECK(...)                                                                                                     \
    do {                                                                                                               \
        if (!(__VA_ARGS__)) {                                                                                          \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " << #__VA_ARGS__ << std::endl;                             \
            ++failed;                                                                                                  \
        }                                                                                                              \
    } while (0)

template <class Function>
static std::string thrown(Function function)
{
    try {
        function();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

static int checked() { return failed ? 1 : 0; }
