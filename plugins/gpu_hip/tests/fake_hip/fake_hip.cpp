// A stand-in for libamdhip64 with hipRTC inside: the emulated device under AMD's names.
// Device 0 calls itself gfx90a, device 1 gfx1100.  Code objects are shared objects that the host's compiler makes.
#define API(name) hip##name
#define PREFIX "hip"
#include "driver.cpp"

#include <regex.h>
#include <string>

namespace {
struct Program {
  std::string text, log, code;
};
std::string read_file(const std::string& path) {
  std::string out;
  if (FILE* f = fopen(path.c_str(), "rb")) {
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) out.append(buffer, n);
    fclose(f);
  }
  return out;
}
// A POSIX expression with one group; <regex> alone takes two seconds to compile.
class Expression {
 public:
  explicit Expression(const char* text) { regcomp(&compiled, text, REG_EXTENDED); }
  // Returns what the group matches in the line; nothing if the line does not match.
  std::string operator()(const std::string& line) const {
    regmatch_t found[2];
    if (regexec(&compiled, line.c_str(), 2, found, 0)) return "";
    return line.substr(found[1].rm_so, found[1].rm_eo - found[1].rm_so);
  }

 private:
  regex_t compiled;
};
std::string entries(const std::string& text) {
  std::string out, space;
  static const Expression kernel("\\bKERNEL\\s*\\([^)]*\\)\\s*(\\w+)\\s*\\("), unit("^namespace (unit_\\w+)");
  size_t start = text.find("#line 1 \"kernels.hip\"");
  for (size_t at = start; at < text.size();) {
    size_t end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    if (std::string name = unit(line); !name.empty()) space = name + "::";
    if (std::string name = kernel(line); !name.empty())
      out += (out.empty() ? "" : ", ") + ("EMU_ENTRY(\"" + name + "\", " + space + name + ", 1)");
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return out;
}
}  // namespace

extern "C" {
int hipGetDevicePropertiesR0600(void* p, int device) {
  memset(p, 0, 1472);
  strcpy((char*)p, "AMD stand-in");
  strcpy((char*)p + 1160, device ? "gfx1100" : "gfx90a:sramecc+:xnack-");
  return 0;
}
const char* hiprtcGetErrorString(int e) { return e == 0 ? "HIPRTC_SUCCESS" : e == 6 ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR"; }
int hiprtcVersion(int* major, int* minor) { return *major = 9, *minor = VERSION, 0; }
int hiprtcCreateProgram(Program** p, const char* text, const char*, int, const char**, const char**) {
  return *p = new Program{text, "", ""}, 0;
}
int hiprtcDestroyProgram(Program** p) { return delete *p, 0; }
int hiprtcCompileProgram(Program* p, int n, const char** options) {
  std::string flags;
  bool known = false;
  for (int i = 0; i < n; ++i) {
    std::string o = options[i];
    if (o == "--offload-arch=gfx90a" || o == "--offload-arch=gfx1100") known = true;
    if (o == "--offload-arch=gfx1100") flags += " -DFRAG=3";  // its matrix instruction
    if (o.rfind("-D", 0) == 0) flags += " " + o;
  }
  if (!known) return p->log = "error: unknown target", 6;
  char folder[] = "/tmp/fakehipXXXXXX";
  if (!mkdtemp(folder)) return 6;
  std::string base = folder, source = base + "/k.cpp", log = base + "/log", out = base + "/k.so";
  if (FILE* f = fopen(source.c_str(), "w")) {
    fprintf(f, "#include \"kernel.h\"\n%s\nEMU_MODULE(%s)\n", p->text.c_str(), entries(p->text).c_str());
    fclose(f);
  }
  std::string command = "g++ -O1 -std=c++17 -shared -fPIC -w" + flags + " -I " EMULATOR " -o " + out + " " + source + " -lm 2> " + log;
  int code = system(command.c_str());
  p->log = read_file(log), p->code = read_file(out);
  for (auto& file : {source, log, out}) unlink(file.c_str());
  rmdir(folder);
  return code ? 6 : 0;
}
int hiprtcGetProgramLogSize(Program* p, size_t* n) { return *n = p->log.size() + 1, 0; }
int hiprtcGetProgramLog(Program* p, char* to) { return memcpy(to, p->log.c_str(), p->log.size() + 1), 0; }
int hiprtcGetCodeSize(Program* p, size_t* n) { return *n = p->code.size(), 0; }
int hiprtcGetCode(Program* p, char* to) { return memcpy(to, p->code.data(), p->code.size()), 0; }
}
