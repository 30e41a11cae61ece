#include "cuda/shared_memory.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem::executor {
namespace {

using Header = ElfW(Ehdr);
using Section = ElfW(Shdr);
using Symbol = ElfW(Sym);

// A file of machine code.
class Symbols {
 public:
  explicit Symbols(const std::string& file) : name_(file) {
    std::ifstream in(file, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    const auto& header = at<Header>(0);
    sections_ = &at<Section>(header.e_shoff);
    for (std::size_t i = 0; i < header.e_shnum; ++i)
      if (sections_[i].sh_type == SHT_SYMTAB) table_ = &sections_[i];
    if (table_ == nullptr)
      throw std::runtime_error(name_ + " has no symbols, which tell where shared memory is");
  }

  using Visit = std::function<void(std::string_view name, const Symbol& symbol)>;
  // Static variables of functions, by mangled name.
  void for_each_local(const Visit& visit) const {
    const char* const names = &at<char>(sections_[table_->sh_link].sh_offset);
    const auto* const symbols = &at<Symbol>(table_->sh_offset);
    for (std::size_t i = 0; i < table_->sh_size / sizeof(Symbol); ++i) {
      const std::string_view name = names + symbols[i].st_name;
      if (ELF64_ST_TYPE(symbols[i].st_info) == STT_OBJECT && name.starts_with("_ZZ"))
        visit(name, symbols[i]);
    }
  }
  bool writable(const Symbol& symbol) const {
    return (sections_[symbol.st_shndx].sh_flags & SHF_WRITE) != 0;
  }

 private:
  template <class T>
  const T& at(std::size_t offset) const {
    if (offset + sizeof(T) > bytes_.size())
      throw std::runtime_error("cannot read the symbols of " + name_);
    return *reinterpret_cast<const T*>(bytes_.data() + offset);
  }

  std::string name_;
  std::vector<char> bytes_;
  const Section* sections_;
  const Section* table_ = nullptr;
};

}  // namespace

std::vector<std::span<std::byte>> shared_memory_of(const void* inside) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(inside, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0)
    throw std::runtime_error("an address in no file of machine code");
  const Symbols symbols(*map->l_name == '\0' ? "/proc/self/exe" : map->l_name);

  // _ZZ<function>E<length><name>
  std::set<std::string_view> functions;
  symbols.for_each_local([&](std::string_view name, const Symbol&) {
    const std::size_t found = name.rfind(kSharedMarker);
    if (found == std::string_view::npos) return;
    functions.insert(name.substr(0, name.rfind('E', found) + 1));
  });
  std::vector<std::span<std::byte>> variables;
  symbols.for_each_local([&](std::string_view name, const Symbol& symbol) {
    if (!symbols.writable(symbol)) return;
    for (std::size_t end = name.find('E'); end != std::string_view::npos;
         end = name.find('E', end + 1)) {
      if (!functions.contains(name.substr(0, end + 1))) continue;
      variables.emplace_back(reinterpret_cast<std::byte*>(map->l_addr + symbol.st_value),
                             symbol.st_size);
      return;
    }
  });
  return variables;
}

}  // namespace tandem::executor
