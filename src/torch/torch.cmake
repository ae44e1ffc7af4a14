# trireme::torch, against the libtorch that cmake/torch.cmake has found.
if(Torch_FOUND)
  add_library(trireme_torch SHARED torch/torch.cpp torch/dataset.cpp torch/tensor.cpp torch/process_group.cpp torch/model.cpp
    torch/rank_sampler.cpp torch/transfer.cpp torch/precision.cpp torch/state.cpp torch/scheduler_state.cpp
    torch/optimizer_state.cpp torch/lbfgs_state.cpp torch/nccl_backend.cpp torch/cancel.cpp torch/device_bytes.cpp)
  add_library(trireme::torch ALIAS trireme_torch)
  # All as one file: libtorch's headers take longer to compile than our code.
  set_target_properties(trireme_torch PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
  # gloo's own headers are not part of libtorch; process_group.cpp needs a few names of them.
  target_include_directories(trireme_torch PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/torch/gloo)
  # Nor is NCCL's header.
  if(TRIREME_NCCL_INCLUDE_DIR)
    set_source_files_properties(torch/nccl_backend.cpp PROPERTIES INCLUDE_DIRECTORIES ${TRIREME_NCCL_INCLUDE_DIR})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # In a unity build, sources look like headers to g++: it warns about classes that use their unnamed namespaces.
    target_compile_options(trireme_torch PRIVATE -Wno-subobject-linkage)
  endif()
  # The installed package links the libtorch of its user: triremeConfig.cmake adds it there.
  target_link_libraries(trireme_torch PUBLIC trireme "$<BUILD_INTERFACE:${TORCH_LIBRARIES}>")
  set_target_properties(trireme_torch PROPERTIES
    EXPORT_NAME torch VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

  # Examples and tests with libtorch share the precompiled header of the first of them: its headers take 20 s per file
  # otherwise. Not that of an empty library: g++ instantiates the templates of the header even for an empty file, in 9 s.
  # Several sources are compiled as one for the same reason. Without optimization, because libtorch does the computing.
  function(trireme_add_torch_program name)
    add_executable(${name} ${ARGN})
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    target_link_libraries(${name} PRIVATE trireme_torch trireme_warnings)
    # -fpch-preprocess: otherwise ccache passes preprocessed files to the compiler, without the header.
    target_compile_options(${name} PRIVATE -O0 $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    get_property(owner GLOBAL PROPERTY TRIREME_TORCH_HEADER_OWNER)
    if(owner)
      target_precompile_headers(${name} REUSE_FROM ${owner})
    else()
      target_precompile_headers(${name} PRIVATE <torch/torch.h> <trireme/torch/torch.h>)
      set_property(GLOBAL PROPERTY TRIREME_TORCH_HEADER_OWNER ${name})
    endif()
  endfunction()
else()
  message(STATUS "libtorch was not found: trireme::torch is left out (set Torch_DIR to have it)")
endif()
