// torch_program FILE [ARGUMENT]...: the tests of trireme::torch. They are one program, because the compiler needs ten
// seconds for libtorch's templates in each.

#include "cases.h"

int main(int argc, char** argv) {
  const std::map<std::string, int (*)(int, char**)> files = {{"cancel", cases::cancel::start},
                                                             {"loaders", cases::loaders::start},
                                                             {"models", cases::models::start},
                                                             {"store", cases::store::start},
                                                             {"training", cases::training::start}};
  const auto found = files.find(argc > 1 ? argv[1] : "");
  if (found != files.end()) return found->second(argc, argv);
  std::cerr << "unknown file of tests\n";
  return 2;
}
