#include "worker/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "base/fd.h"

namespace trireme::worker {
namespace {

// A larger table is not read: it would take too long.
constexpr std::uint64_t kMaxTable = 256 << 20;
constexpr std::size_t kMaxName = 4096;

struct Mapping {
  Address begin = 0;
  Address end = 0;
  Address file_offset = 0;
  std::string file;
};

// Ordered by address, as the kernel writes them.
std::vector<Mapping> executable_mappings() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    char flags[5] = {};
    int path_at = 0;
    unsigned long begin = 0, end = 0, offset = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %*s %n", &begin, &end, flags, &offset, &path_at) < 4) continue;
    if (flags[2] != 'x') continue;
    mapping.begin = begin;
    mapping.end = end;
    mapping.file_offset = offset;
    if (path_at > 0) mapping.file = line.substr(static_cast<std::size_t>(path_at));
    found.push_back(std::move(mapping));
  }
  return found;
}

// Reads with pread(): a mapped file that is replaced during the read would crash the process.
class ElfFile {
 public:
  static std::optional<ElfFile> open(const std::string& path) {
    ElfFile file;
    file.fd_ = base::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.fd_.valid() || !file.read(0, &file.header_, sizeof file.header_)) return {};
    const auto& ident = file.header_.e_ident;
    if (std::memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_CLASS] != ELFCLASS64) return {};
    file.segments_ = file.table<Elf64_Phdr>(file.header_.e_phoff, file.header_.e_phnum * sizeof(Elf64_Phdr));
    file.sections_ = file.table<Elf64_Shdr>(file.header_.e_shoff, file.header_.e_shnum * sizeof(Elf64_Shdr));
    return file;
  }

  Address virtual_address(Address file_offset) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_LOAD && file_offset >= segment.p_offset &&
          file_offset < segment.p_offset + segment.p_filesz) {
        return file_offset - segment.p_offset + segment.p_vaddr;
      }
    }
    return file_offset;
  }

  // The function around each of the sorted virtual addresses; no entry if there is none.
  std::map<Address, std::string> functions_at(const std::vector<Address>& sorted) const {
    std::map<Address, std::string> names;
    const Elf64_Shdr* symbols = symbol_table();
    if (!symbols || symbols->sh_link >= sections_.size()) return names;
    const Elf64_Shdr& strings = sections_[symbols->sh_link];
    for (const Elf64_Sym& symbol : table<Elf64_Sym>(symbols->sh_offset, symbols->sh_size)) {
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
      for (auto at = std::lower_bound(sorted.begin(), sorted.end(), symbol.st_value);
           at != sorted.end() && *at - symbol.st_value < symbol.st_size; ++at) {
        keep_better(names[*at], name_at(strings, symbol.st_name));
      }
    }
    return names;
  }

 private:
  // The full table also has functions that the file does not export.
  const Elf64_Shdr* symbol_table() const {
    const Elf64_Shdr* exported = nullptr;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_SYMTAB) return &section;
      if (section.sh_type == SHT_DYNSYM) exported = &section;
    }
    return exported;
  }

  // Of several aliases of a function, keeps the common name: poll, not __poll.
  static void keep_better(std::string& name, std::string other) {
    auto underscores = [](const std::string& text) { return std::min(text.find_first_not_of('_'), text.size()); };
    if (name.empty() || underscores(other) < underscores(name)) name = std::move(other);
  }

  std::string name_at(const Elf64_Shdr& strings, std::uint64_t index) const {
    std::string name(std::min<std::uint64_t>(kMaxName, index < strings.sh_size ? strings.sh_size - index : 0), '\0');
    if (!read(strings.sh_offset + index, name.data(), name.size())) return "";
    name.resize(std::strlen(name.c_str()));
    return name;
  }

  template <typename Entry>
  std::vector<Entry> table(std::uint64_t offset, std::uint64_t size) const {
    if (size > kMaxTable) return {};
    std::vector<Entry> entries(size / sizeof(Entry));
    if (!read(offset, entries.data(), entries.size() * sizeof(Entry))) return {};
    return entries;
  }

  bool read(std::uint64_t offset, void* target, std::size_t size) const {
    return ::pread(fd_.get(), target, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  }

  base::Fd fd_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Shdr> sections_;
};

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

void name_functions(const std::string& path, const std::vector<Symbol*>& wanted) {
  const auto file = ElfFile::open(path);
  if (!file) return;
  std::vector<Address> addresses;
  for (const Symbol* symbol : wanted) addresses.push_back(file->virtual_address(symbol->offset));
  std::vector<Address> sorted = addresses;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const auto names = file->functions_at(sorted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto name = names.find(addresses[i]);
    if (name != names.end()) wanted[i]->function = demangled(name->second);
  }
}

}  // namespace

std::map<Address, Symbol> symbolize(std::vector<Address> addresses) {
  const auto mappings = executable_mappings();
  std::map<Address, Symbol> symbols;
  std::map<std::string, std::vector<Symbol*>> by_file;
  for (const Address address : addresses) {
    auto [entry, is_new] = symbols.try_emplace(address);
    if (!is_new) continue;
    auto mapping = std::upper_bound(mappings.begin(), mappings.end(), address,
                                    [](Address value, const Mapping& other) { return value < other.end; });
    if (mapping == mappings.end() || address < mapping->begin) continue;
    entry->second.file = mapping->file;
    entry->second.offset = address - mapping->begin + mapping->file_offset;
    if (mapping->file.starts_with('/')) by_file[mapping->file].push_back(&entry->second);
  }
  for (const auto& [file, wanted] : by_file) name_functions(file, wanted);
  return symbols;
}

std::string without_parameters(const std::string& function) {
  const std::size_t last = function.rfind(')');
  if (last == std::string::npos) return function;
  int depth = 0;
  for (std::size_t at = last + 1; at-- > 0;) {
    if (function[at] == ')') ++depth;
    if (function[at] == '(' && --depth == 0) {
      // "operator()" alone and "(anonymous namespace)::f" have no parameters to drop there.
      const bool ends_here = function.find("::", last) == std::string::npos;
      return at > 0 && ends_here && !function.substr(0, at).ends_with("operator") ? function.substr(0, at) : function;
    }
  }
  return function;
}

}  // namespace trireme::worker
