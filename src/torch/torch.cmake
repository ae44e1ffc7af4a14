# trireme::torch, against the libtorch that cmake/torch.cmake has found.
if(Torch_FOUND)
  add_library(trireme_torch SHARED torch/torch.cpp torch/dataset.cpp torch/tensor.cpp torch/process_group.cpp torch/model.cpp torch/rank_sampler.cpp
    torch/transfer.cpp torch/precision.cpp torch/state.cpp torch/scheduler_state.cpp torch/optimizer_state.cpp
    torch/lbfgs_state.cpp)
  add_library(trireme::torch ALIAS trireme_torch)
  # gloo's own headers are not part of libtorch; one file needs a few names of them.
  set_source_files_properties(torch/process_group.cpp PROPERTIES
    INCLUDE_DIRECTORIES ${CMAKE_CURRENT_SOURCE_DIR}/torch/gloo)
  # The installed package links the libtorch of whoever uses it: triremeConfig.cmake adds it there.
  target_link_libraries(trireme_torch PUBLIC trireme "$<BUILD_INTERFACE:${TORCH_LIBRARIES}>")
  set_target_properties(trireme_torch PROPERTIES
    EXPORT_NAME torch VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
else()
  message(STATUS "libtorch was not found: trireme::torch is left out (set Torch_DIR to have it)")
endif()
