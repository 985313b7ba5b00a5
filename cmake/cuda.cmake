# The device cuda: CUDA's compiler, runtime (linked statically) and headers of cuBLASLt. Its other
# libraries are opened when they are needed (device/cuda_library.h). ECH_HAS_CUDA: the device and its
# kernels are built. AUTO builds them where an NVIDIA driver is installed, for that machine's GPU:
# nvcc takes most of a build's time. ON builds them anywhere, for sm_80 and, as PTX, for newer GPUs:
# their driver translates it when a run starts.
set(ECH_CUDA_ARCHITECTURES "" CACHE STRING
    "of GPUs, as CMAKE_CUDA_ARCHITECTURES: 80, native, 80-real;90; empty: native with AUTO, else 80")
# Files of rows whose tensors are fp32 or fp64 whatever the table's type is: 16-bit types have fp32's (kernel/cuda/scratch.c).
set(ECH_CUDA_WIDE "/(choose|gate|orthogonalize)\\.cu$")
ech_option(CUDA "device cuda")
option(ECH_CUDA_F16 "fp16 on the device cuda: a third of its kernels' compile time more" OFF)
set(lacking)
if(ECH_CUDA STREQUAL "AUTO" AND (ECH_SANITIZE OR ECH_FUZZ))
  set(lacking "as sanitizers and fuzzers do not see it")
elseif(ECH_CUDA STREQUAL "AUTO" AND NOT EXISTS /proc/driver/nvidia/version AND
       NOT EXISTS /usr/lib/wsl/lib/libcuda.so.1)
  set(lacking "no NVIDIA driver is installed (-DECH_CUDA=ON builds it without one)")
elseif(ECH_WANTS_CUDA)
  include(CheckLanguage)
  if(DEFINED CMAKE_CUDA_COMPILER AND NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # it may be there now
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    find_package(CUDAToolkit 12 QUIET)
    find_path(ECH_CUBLASLT_INCLUDE cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(lacking "no compiler: neither nvcc in PATH nor CUDACXX")
  elseif(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cudart_static)
    set(lacking "${CMAKE_CUDA_COMPILER} is there, but no runtime of CUDA 12 or newer (libcudart_static.a)")
  elseif(NOT ECH_CUBLASLT_INCLUDE)
    set(lacking "${CMAKE_CUDA_COMPILER} is there, but no cublasLt.h (Debian's libcublas-dev, pip's nvidia-cublas)")
  endif()
endif()
set(architectures ${ECH_CUDA_ARCHITECTURES})
if(NOT architectures)
  set(architectures 80)
  if(ECH_CUDA STREQUAL "AUTO")
    set(architectures native)
  endif()
endif()
ech_decide(CUDA "device cuda" "${lacking}"
           "CUDA ${CUDAToolkit_VERSION} of ${CMAKE_CUDA_COMPILER}, for ${architectures}")
if(ECH_HAS_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
  set(CMAKE_CUDA_STANDARD 17)
  if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER AND CMAKE_C_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
  endif()
  enable_language(CUDA)
  if(architectures STREQUAL "native" AND NOT CMAKE_CUDA_ARCHITECTURES_NATIVE MATCHES "^[0-9]")
    set(CMAKE_CUDA_ARCHITECTURES 80) # a driver, and no GPU that the build may see
  endif()
endif()
