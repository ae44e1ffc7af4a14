#include <dlfcn.h>

#include <cstdio>
#include <filesystem>

// The program `trireme` of the Python package: trireme/bin/trireme runs the commands that trireme/_core*.so contains.

int main(int argc, char** argv) {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const auto extension = program.parent_path().parent_path() / TRIREME_EXTENSION;
  void* loaded = dlopen(extension.c_str(), RTLD_LAZY | RTLD_LOCAL);
  const auto run = reinterpret_cast<int (*)(int, char**)>(loaded ? dlsym(loaded, "trireme_command_line") : nullptr);
  if (!run) {
    std::fprintf(stderr, "trireme: %s; this installation is incomplete, reinstall trireme\n", dlerror());
    return 1;
  }
  return run(argc, argv);
}
