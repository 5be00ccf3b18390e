// Prebuilt oneDNN starts OpenMP teams and waits for all of their threads, even for those that the system has descheduled.  It calls
// the OpenMP runtime through its GOT, whose entries are overwritten here; other libraries keep their OpenMP runtime.
#include "openmp.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl.h>

#include "team.h"
#include "threads.h"

namespace mgx {

namespace {

thread_local int requested = 0;
int team_size() { return requested ? requested : thread_count(); }

thread_local std::vector<Region> regions; // open regions of the calling thread, innermost last

void parallel_start(void (*part)(void *), void *data, unsigned threads) {
    const int parts = own_seat().inside ? 1 : threads ? static_cast<int>(threads) : team_size();
    regions.push_back({part, data, parts});
    open_region(regions.back());
}

void parallel_end() {
    Region region = regions.back(); // a copy: nested regions may reallocate the vector
    close_region(region);
    regions.pop_back();
}

void parallel(void (*part)(void *), void *data, unsigned threads, unsigned) {
    parallel_start(part, data, threads);
    part(data);
    parallel_end();
}

int max_threads() { return own_seat().inside ? 1 : team_size(); }
int num_threads() { return own_seat().count; }
int thread_num() { return own_seat().index; }
int in_parallel() { return own_seat().inside; }

struct Replacement {
    const char *name;
    void *with;
};

const Replacement replacements[] = {
        {"GOMP_parallel_start", reinterpret_cast<void *>(&parallel_start)},
        {"GOMP_parallel_end", reinterpret_cast<void *>(&parallel_end)},
        {"GOMP_parallel", reinterpret_cast<void *>(&parallel)},
        {"GOMP_barrier", reinterpret_cast<void *>(&team_barrier)},
        {"omp_get_max_threads", reinterpret_cast<void *>(&max_threads)},
        {"omp_get_num_threads", reinterpret_cast<void *>(&num_threads)},
        {"omp_get_thread_num", reinterpret_cast<void *>(&thread_num)},
        {"omp_in_parallel", reinterpret_cast<void *>(&in_parallel)},
};

// Tables of a loaded library, from its dynamic section.
struct Library {
    uintptr_t base;
    uintptr_t names = 0, symbols = 0, calls = 0, others = 0;
    size_t calls_bytes = 0, others_bytes = 0;

    Library(uintptr_t base, const ElfW(Dyn) * entry) : base(base) {
        auto address = [&](const ElfW(Dyn) & e) { return e.d_un.d_ptr < base ? base + e.d_un.d_ptr : e.d_un.d_ptr; };
        for (; entry->d_tag != DT_NULL; ++entry) {
            if (entry->d_tag == DT_STRTAB) names = address(*entry);
            if (entry->d_tag == DT_SYMTAB) symbols = address(*entry);
            if (entry->d_tag == DT_JMPREL) calls = address(*entry);
            if (entry->d_tag == DT_PLTRELSZ) calls_bytes = entry->d_un.d_val;
            if (entry->d_tag == DT_RELA) others = address(*entry);
            if (entry->d_tag == DT_RELASZ) others_bytes = entry->d_un.d_val;
        }
    }

    void redirect(uintptr_t table, size_t bytes, const ElfW(Phdr) * protected_part) const {
        const auto *relocations = reinterpret_cast<const ElfW(Rela) *>(table);
        for (size_t i = 0; i < bytes / sizeof(ElfW(Rela)); ++i) {
            const auto type = ELF64_R_TYPE(relocations[i].r_info);
            if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
            const auto *symbol = reinterpret_cast<const ElfW(Sym) *>(symbols) + ELF64_R_SYM(relocations[i].r_info);
            const char *name = reinterpret_cast<const char *>(names) + symbol->st_name;
            for (const auto &one : replacements)
                if (std::strcmp(name, one.name) == 0) write(base + relocations[i].r_offset, one.with, protected_part);
        }
    }

    void write(uintptr_t slot, void *with, const ElfW(Phdr) * protected_part) const {
        const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        auto *start = reinterpret_cast<void *>(slot / page * page);
        const uintptr_t first = protected_part ? base + protected_part->p_vaddr : 0;
        const bool read_only = protected_part && slot >= first && slot < first + protected_part->p_memsz;
        if (read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return;
        __atomic_store_n(reinterpret_cast<void **>(slot), with, __ATOMIC_RELEASE);
        if (read_only) mprotect(start, page, PROT_READ);
    }
};

int redirect(dl_phdr_info *info, size_t, void *wanted) {
    const ElfW(Phdr) *dynamic = nullptr, *protected_part = nullptr;
    bool found = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto &part = info->dlpi_phdr[i];
        if (part.p_type == PT_DYNAMIC) dynamic = &part;
        if (part.p_type == PT_GNU_RELRO) protected_part = &part;
        if (part.p_type == PT_LOAD) {
            const auto offset = reinterpret_cast<uintptr_t>(wanted) - info->dlpi_addr - part.p_vaddr;
            found = found || offset < part.p_memsz;
        }
    }
    if (!found || !dynamic) return 0;
    Library library(info->dlpi_addr, reinterpret_cast<const ElfW(Dyn) *>(info->dlpi_addr + dynamic->p_vaddr));
    library.redirect(library.calls, library.calls_bytes, protected_part);
    library.redirect(library.others, library.others_bytes, protected_part);
    return 1;
}

} // namespace

int requested_team_size() { return requested; }

void request_team_size(int threads) { requested = threads; }

void redirect_onednn() {
    static const bool done = [] {
        dl_iterate_phdr(&redirect, const_cast<dnnl_version_t *>(dnnl_version()));
        return true;
    }();
    (void)done;
}

} // namespace mgx
