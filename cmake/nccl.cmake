# trireme_find_nccl(TORCH_PREFIX OUT): sets OUT to the folder of nccl.h, which libtorch needs but does not contain. Empty,
# with a warning, if it is not found: trireme::torch then uses Gloo on GPUs.
function(trireme_find_nccl torch_prefix out)
  unset(found)
  # TORCH_PREFIX is site-packages/torch in the pip package, whose NCCL is in a package beside it.
  find_path(found nccl.h NO_CACHE
    HINTS ENV NCCL_INCLUDE_DIR ENV NCCL_ROOT ENV NCCL_HOME "${torch_prefix}/../nvidia/nccl" "${torch_prefix}"
    PATHS /usr/local/cuda
    PATH_SUFFIXES include)
  if(NOT found)
    message(WARNING
      "nccl.h was not found: trireme::torch will exchange tensors on GPUs with Gloo, which is much slower than NCCL. "
      "Install NCCL's headers (the pip package nvidia-nccl-cu12 or nvidia-nccl-cu13, or libnccl-dev) or set NCCL_HOME, and configure again.")
    set(found "")
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()
