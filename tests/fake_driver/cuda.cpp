// A replacement for the NVIDIA driver's libcuda.so.1: as with the real one, nothing works before cuInit(), and nothing
// works in a process that was forked after it.

#include <unistd.h>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotInitialized = 3;

pid_t g_initialized_in = 0;

}  // namespace

extern "C" {
#define FAKE __attribute__((visibility("default")))

FAKE int cuInit(unsigned /*flags*/) {
  if (g_initialized_in != 0 && g_initialized_in != ::getpid()) return kNotInitialized;
  g_initialized_in = ::getpid();
  return kSuccess;
}

FAKE int cuDeviceGetCount(int* count) {
  if (g_initialized_in != ::getpid()) return kNotInitialized;
  *count = 1;
  return kSuccess;
}
}
