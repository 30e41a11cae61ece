// A host without Tandem loads a plug-in that trains with it, then a second one, whose copy of the
// library is its own, as plug-ins of two vendors have.
//
//   host_plugin FLAGS PLUGIN LIBRARY      FLAGS: local or deep (RTLD_DEEPBIND)
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "support/files.h"

namespace {

namespace fs = std::filesystem;
using Train = double(int seed);

int flags = RTLD_NOW | RTLD_LOCAL;

void* load(const fs::path& library) {
  void* handle = dlopen(library.c_str(), flags);
  if (!handle) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::_Exit(1);
  }
  return handle;
}

// A copy in `folder` with `other` in each place of `name`.
fs::path renamed(const fs::path& from, const fs::path& folder, const std::string& name,
                 const std::string& other) {
  std::string bytes = tandem::testing::read_file(from);
  for (std::size_t at = 0; (at = bytes.find(name, at)) != std::string::npos; at += other.size())
    bytes.replace(at, other.size(), other);
  const fs::path to = folder / from.filename();
  std::ofstream(to, std::ios::binary) << bytes;
  return to;
}

Train* train_of(void* plugin) { return reinterpret_cast<Train*>(dlsym(plugin, "plugin_train")); }

}  // namespace

int main(int, char** argv) {
  if (std::strcmp(argv[1], "deep") == 0) flags |= RTLD_DEEPBIND;
  const fs::path plugin = argv[2], library = argv[3];
  Train* const first = train_of(load(plugin));
  const double expected = first(1);

  const tandem::testing::TemporaryDirectory folder;
  const std::string name = library.filename().string();
  std::string other = name;
  other[other.find("tandem")] = 'T';
  load(renamed(library, folder.path(), name, other));  // which the second plug-in needs
  Train* const second = train_of(load(renamed(plugin, folder.path(), name, other)));

  double alone = second(1), together = 0;
  std::thread other_plugin([&] { together = second(1); });
  const double again = first(1);
  other_plugin.join();
  std::printf("%.9g %.9g %.9g %.9g\n", expected, alone, again, together);
  return expected > 0 && alone == expected && again == expected && together == expected ? 0 : 3;
}
