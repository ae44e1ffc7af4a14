#pragma once

#include <cstdint>

// A device for tests, libtorch's PrivateUse1: its memory is host memory, but its streams are real threads that work
// asynchronously, and it counts what programs do. Copies to host memory that is not registered are synchronous, as
// CUDA's are. Python loads the library and calls these functions with ctypes.

extern "C" {

struct FakeGpuCounts {
  std::int64_t copies_to_host;          // all
  std::int64_t copies_to_pageable;      // to memory that is not registered
  std::int64_t copies_on_first_stream;  // to host memory, on the stream that a program computes on by default
  std::int64_t waits;                   // of the host, for a stream or an event
  std::int64_t registered;              // calls of cudaHostRegister
  std::int64_t unregistered;
  std::int64_t recorded;  // tensors whose memory is protected on another stream
};

FakeGpuCounts fake_gpu_counts();

// Work on the current stream of the calling thread waits from now on until the gate is opened.
void fake_gpu_close_gate();
void fake_gpu_open_gate();

// Returns when a thread has waited for the device `count` times, or is doing so.
void fake_gpu_await_waits(std::int64_t count);

// The part of CUDA's runtime that trireme uses.
int cudaHostRegister(void* memory, std::size_t size, unsigned flags);
int cudaHostUnregister(void* memory);
}
