#include "object_loader.h"

#include <cstring>
#include <limits>
#include <optional>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <pybind11/stl.h>

#include "byte_channels.h"
#include "byte_dots.h"
#include "byte_pairs.h"
#include "byte_tiles.h"
#include "errors.h"
#include "interpreter.h"
#include "product_tiles.h"

namespace py = pybind11;

namespace mgx {

namespace {

constexpr size_t page = 4096;
constexpr size_t outside = std::numeric_limits<size_t>::max(); // image offset of sections that are not loaded

[[noreturn]] void refuse(const std::string &why) { throw Failure(Fault::device, "a compiled loop cannot be loaded: " + why); }

size_t rounded(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// One object file: bounds-checked access to its tables, and the image offsets assigned to its sections.
class Object {
public:
    explicit Object(std::string_view data) : data_(data) {
        auto head = at<Elf64_Ehdr>(0);
        if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64
                || head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_type != ET_REL || head.e_machine != EM_X86_64
                || head.e_shentsize != sizeof(Elf64_Shdr))
            refuse("it is not a relocatable ELF object for x86-64");
        for (size_t i = 0; i < head.e_shnum; ++i)
            sections.push_back(at<Elf64_Shdr>(head.e_shoff + i * sizeof(Elf64_Shdr)));
        places.assign(sections.size(), outside);
        if (head.e_shstrndx >= sections.size()) refuse("its section name table is missing");
        names_ = head.e_shstrndx;
        for (size_t i = 0; i < sections.size(); ++i)
            if (sections[i].sh_type == SHT_SYMTAB) {
                table_ = i;
                strings_ = sections[i].sh_link;
                if (strings_ >= sections.size()) refuse("its symbol name table is missing");
            }
    }

    template <typename T>
    T at(size_t offset) const {
        T value;
        std::memcpy(&value, bytes(offset, sizeof(T)), sizeof(T));
        return value;
    }

    const char *bytes(size_t offset, size_t count) const {
        if (offset > data_.size() || count > data_.size() - offset) refuse("it is truncated (cut off)");
        return data_.data() + offset;
    }

    std::string text(size_t section, size_t offset) const {
        const auto &strings = sections[section];
        if (offset >= strings.sh_size) refuse("a name is outside its string table");
        const char *start = bytes(strings.sh_offset + offset, strings.sh_size - offset);
        return {start, strnlen(start, strings.sh_size - offset)};
    }

    std::string section_name(size_t index) const { return text(names_, sections[index].sh_name); }

    // Unwind tables are not loaded: loops do not throw.
    bool loaded(size_t index) const {
        const auto &s = sections[index];
        return (s.sh_flags & SHF_ALLOC) && s.sh_size && section_name(index) != ".eh_frame";
    }

    size_t symbol_count() const { return table_ ? sections[table_].sh_size / sizeof(Elf64_Sym) : 0; }

    Elf64_Sym symbol(size_t index) const {
        if (index >= symbol_count()) refuse("a relocation refers to a symbol outside the symbol table");
        return at<Elf64_Sym>(sections[table_].sh_offset + index * sizeof(Elf64_Sym));
    }

    std::string symbol_name(const Elf64_Sym &symbol) const { return text(strings_, symbol.st_name); }

    std::vector<Elf64_Shdr> sections;
    std::vector<size_t> places; // offset of each section in the image

private:
    std::string_view data_;
    size_t names_ = 0;
    size_t table_ = 0;
    size_t strings_ = 0;
};

// Imported functions: a table of their addresses (GOT), followed by one jump stub for each (PLT).  Calls go to the stubs, which
// are within the 32-bit range of a relative call wherever the functions themselves are.
class Imports {
public:
    static constexpr size_t jump = 8; // bytes per stub

    size_t number(const std::string &name) {
        auto [found, added] = numbers_.try_emplace(name, numbers_.size());
        if (added) {
            void *address = product_function(name);
            if (!address) address = byte_tile_function(name);
            if (!address) address = byte_pair_function(name);
            if (!address) address = byte_channel_function(name);
            if (!address) address = byte_dot_function(name);
            if (!address) address = interpreter_address(name);
            if (!address) address = dlsym(RTLD_DEFAULT, name.c_str());
            if (!address) refuse("there is no function " + name + ", which it calls");
            addresses_.push_back(address);
        }
        return found->second;
    }
    size_t size() const { return addresses_.size() * (sizeof(void *) + jump); }
    size_t slot(size_t number) const { return base + number * sizeof(void *); }
    size_t stub(size_t number) const { return base + addresses_.size() * sizeof(void *) + number * jump; }

    void write(char *memory) const {
        for (size_t i = 0; i < addresses_.size(); ++i) {
            std::memcpy(memory + slot(i), &addresses_[i], sizeof(void *));
            char code[jump] = {'\xff', '\x25'}; // jmp *slot(%rip)
            auto distance = static_cast<int32_t>(static_cast<int64_t>(slot(i)) - static_cast<int64_t>(stub(i) + 6));
            std::memcpy(code + 2, &distance, sizeof distance);
            std::memcpy(memory + stub(i), code, jump);
        }
    }

    size_t base = 0;

private:
    std::map<std::string, size_t> numbers_;
    std::vector<void *> addresses_;
};

void relocate(const Object &object, const Imports &imports, std::map<std::string, size_t> &numbers, char *memory,
        const Elf64_Shdr &table) {
    size_t target = object.places[table.sh_info];
    const auto &section = object.sections[table.sh_info];
    for (size_t n = 0; n < table.sh_size / sizeof(Elf64_Rela); ++n) {
        auto entry = object.at<Elf64_Rela>(table.sh_offset + n * sizeof(Elf64_Rela));
        auto kind = ELF64_R_TYPE(entry.r_info);
        size_t width = kind == R_X86_64_64 || kind == R_X86_64_PC64 ? 8 : 4;
        if (entry.r_offset > section.sh_size || width > section.sh_size - entry.r_offset)
            refuse("a relocation is outside its section");
        auto symbol = object.symbol(ELF64_R_SYM(entry.r_info));
        size_t place = target + entry.r_offset;
        size_t value = 0; // offset in the image
        if (symbol.st_shndx == SHN_UNDEF) {
            size_t number = numbers.at(object.symbol_name(symbol));
            bool through_slot = kind == R_X86_64_GOTPCREL || kind == R_X86_64_GOTPCRELX || kind == R_X86_64_REX_GOTPCRELX;
            value = through_slot ? imports.slot(number) : imports.stub(number);
        } else if (symbol.st_shndx < object.sections.size() && object.places[symbol.st_shndx] != outside) {
            if (kind == R_X86_64_GOTPCREL || kind == R_X86_64_GOTPCRELX || kind == R_X86_64_REX_GOTPCRELX)
                refuse("it accesses its own symbols through a global offset table, which is not supported");
            value = object.places[symbol.st_shndx] + symbol.st_value;
        } else {
            refuse("a symbol is in a section that is not loaded");
        }
        int64_t relative = static_cast<int64_t>(value) + entry.r_addend - static_cast<int64_t>(place);
        switch (kind) {
            case R_X86_64_64: {
                uint64_t absolute = reinterpret_cast<uint64_t>(memory) + value + static_cast<uint64_t>(entry.r_addend);
                std::memcpy(memory + place, &absolute, 8);
                break;
            }
            case R_X86_64_PC64: std::memcpy(memory + place, &relative, 8); break;
            case R_X86_64_PC32:
            case R_X86_64_PLT32:
            case R_X86_64_GOTPCREL:
            case R_X86_64_GOTPCRELX:
            case R_X86_64_REX_GOTPCRELX: {
                auto near = static_cast<int32_t>(relative);
                if (near != relative) refuse("a relative relocation exceeds 32 bits: it is too large");
                std::memcpy(memory + place, &near, 4);
                break;
            }
            default: refuse("relocations of type " + std::to_string(kind) + " are not supported");
        }
    }
}

} // namespace

CodeImage::CodeImage(const std::vector<std::string_view> &objects) {
    std::vector<Object> parsed(objects.begin(), objects.end());
    Imports imports;
    std::map<std::string, size_t> numbers;
    size_t end = 0;
    for (auto &object : parsed) {
        for (size_t i = 0; i < object.sections.size(); ++i) {
            const auto &s = object.sections[i];
            if (!object.loaded(i)) continue;
            if ((s.sh_flags & SHF_WRITE) && object.section_name(i).rfind(".data.rel.ro", 0) != 0)
                refuse("section " + object.section_name(i) + " is writable");
            if (s.sh_addralign > page || s.sh_size > (size_t {1} << 30))
                refuse("section " + object.section_name(i) + " has an unsupported size or alignment");
            end = rounded(end, std::max<size_t>(s.sh_addralign, 16));
            object.places[i] = end;
            end += s.sh_size;
        }
        for (size_t i = 1; i < object.symbol_count(); ++i) {
            auto symbol = object.symbol(i);
            if (symbol.st_shndx == SHN_UNDEF && symbol.st_name) {
                auto name = object.symbol_name(symbol);
                numbers[name] = imports.number(name);
            }
        }
    }
    imports.base = rounded(end, 16);
    bytes_ = rounded(std::max<size_t>(imports.base + imports.size(), 1), page);
    void *made = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw Failure(Fault::device, "cannot allocate " + std::to_string(bytes_) + " bytes for compiled loops");
    memory_ = static_cast<char *>(made);
    try {
        for (auto &object : parsed) {
            for (size_t i = 0; i < object.sections.size(); ++i) {
                const auto &s = object.sections[i];
                if (object.places[i] != outside && s.sh_type != SHT_NOBITS)
                    std::memcpy(memory_ + object.places[i], object.bytes(s.sh_offset, s.sh_size), s.sh_size);
            }
            for (auto &s : object.sections) {
                if (s.sh_type == SHT_REL) refuse("relocations without addends (SHT_REL) are not used on x86-64");
                if (s.sh_type == SHT_RELA && s.sh_info < object.places.size() && object.places[s.sh_info] != outside)
                    relocate(object, imports, numbers, memory_, s);
            }
            for (size_t i = 1; i < object.symbol_count(); ++i) {
                auto symbol = object.symbol(i);
                if (ELF64_ST_BIND(symbol.st_info) == STB_LOCAL || symbol.st_shndx >= object.places.size()
                        || object.places[symbol.st_shndx] == outside)
                    continue;
                size_t offset = object.places[symbol.st_shndx] + symbol.st_value;
                if (offset >= end) refuse("a function is outside the loaded sections");
                symbols_[object.symbol_name(symbol)] = reinterpret_cast<size_t>(memory_) + offset;
            }
        }
        imports.write(memory_);
        if (mprotect(memory_, bytes_, PROT_READ | PROT_EXEC) != 0) refuse("the system does not allow executable memory");
    } catch (...) {
        munmap(memory_, bytes_);
        throw;
    }
}

CodeImage::~CodeImage() { munmap(memory_, bytes_); }

size_t CodeImage::address(const std::string &symbol) const {
    auto found = symbols_.find(symbol);
    if (found == symbols_.end()) refuse("it has no function " + symbol);
    return found->second;
}

namespace {

// Load address and linker build id of this library.
struct ThisLibrary {
    size_t base = 0;
    std::string build;
};

const ThisLibrary &this_library() {
    static const ThisLibrary found = [] {
        ThisLibrary self;
        Dl_info info {};
        if (dladdr(reinterpret_cast<void *>(&bind_image), &info)) self.base = reinterpret_cast<size_t>(info.dli_fbase);
        dl_iterate_phdr(
                [](dl_phdr_info *library, size_t, void *given) {
                    auto &self = *static_cast<ThisLibrary *>(given);
                    if (library->dlpi_addr != self.base) return 0;
                    for (size_t i = 0; i < library->dlpi_phnum; ++i) {
                        const auto &part = library->dlpi_phdr[i];
                        if (part.p_type != PT_NOTE) continue;
                        auto *at = reinterpret_cast<const char *>(self.base + part.p_vaddr), *end = at + part.p_memsz;
                        while (at + sizeof(ElfW(Nhdr)) <= end) {
                            ElfW(Nhdr) note;
                            std::memcpy(&note, at, sizeof note);
                            const char *name = at + sizeof note, *text = name + (note.n_namesz + 3) / 4 * 4;
                            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !std::memcmp(name, "GNU", 4))
                                self.build.assign(text, note.n_descsz);
                            at = text + (note.n_descsz + 3) / 4 * 4;
                        }
                    }
                    return 1;
                },
                &self);
        return self;
    }();
    return found;
}

} // namespace

void bind_image(py::module_ &module) {
    module.def("build_id", [] { return py::bytes(this_library().build); });
    module.def("own_offset",
            [](size_t address) -> std::optional<size_t> {
                Dl_info info {};
                bool here = dladdr(reinterpret_cast<void *>(address), &info)
                        && reinterpret_cast<size_t>(info.dli_fbase) == this_library().base;
                return here ? std::optional<size_t>(address - this_library().base) : std::nullopt;
            },
            py::arg("address"));
    module.def("own_address", [](size_t offset) { return this_library().base + offset; }, py::arg("offset"));
    py::class_<CodeImage>(module, "CodeImage")
            .def(py::init([](const std::vector<py::bytes> &objects) {
                std::vector<std::string_view> views(objects.begin(), objects.end());
                return std::make_unique<CodeImage>(views);
            }),
                    py::arg("objects"))
            .def("address", &CodeImage::address, py::arg("symbol"))
            .def_property_readonly("nbytes", &CodeImage::bytes);
}

} // namespace mgx
