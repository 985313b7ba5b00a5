# Everything comes from Debian's packages; tools/install_dependencies.sh installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP COMPONENTS C)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
find_program(PROTOC_C protoc-c REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
find_path(RANDOM123_INCLUDE Random123/philox.h REQUIRED)

# What a build may lack (cmake/optional.cmake): the backend `ucx`, and libraries of products, without which our own tiles
# multiply in fp32 and narrower types, and the reference in fp64.
# MPI's library is opened at run time (comm/mpi_library.h). Tests start ranks with Open MPI's launcher.
set(ECH_HAS_MPI OFF)
find_program(MPIEXEC_EXECUTABLE NAMES mpirun.openmpi mpirun)
if(MPIEXEC_EXECUTABLE)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1
                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ${MPIEXEC_EXECUTABLE} --version
                  OUTPUT_VARIABLE version ERROR_QUIET)
  if(version MATCHES "Open MPI|OpenRTE")
    set(ECH_HAS_MPI ON)
  endif()
endif()
message(STATUS "tests of MPI: ${ECH_HAS_MPI} (Open MPI's mpirun)")

# Of UCX the headers alone: its library is opened where a job asks for it (comm/ucx_library.h).
ech_option(UCX "UCX")
set(lacking)
if(ECH_WANTS_UCX)
  pkg_check_modules(UCX QUIET ucx>=1.13)
  if(NOT UCX_FOUND)
    set(lacking "no UCX 1.13 or newer found (Debian's libucx-dev)")
  endif()
endif()
ech_decide(UCX "UCX" "${lacking}" "${UCX_VERSION}")

ech_option(ONEDNN "oneDNN")
set(lacking)
if(ECH_WANTS_ONEDNN)
  find_library(DNNL_LIBRARY dnnl)
  find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
  if(NOT DNNL_LIBRARY OR NOT DNNL_INCLUDE)
    set(lacking "not found (Debian's libdnnl-dev); products will be slower")
  endif()
endif()
ech_decide(ONEDNN "oneDNN" "${lacking}" "${DNNL_LIBRARY}")

# Of OpenBLAS the variant that shares OpenMP's threads.
ech_option(BLAS "OpenBLAS")
set(lacking)
if(ECH_WANTS_BLAS)
  find_library(OPENBLAS_LIBRARY NAMES openblas
               PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
  find_path(OPENBLAS_INCLUDE cblas.h
            PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
  if(NOT OPENBLAS_LIBRARY OR NOT OPENBLAS_INCLUDE)
    set(lacking "not found (Debian's libopenblas-openmp-dev); fp64, and fp32 on AVX2, will be slower")
  endif()
endif()
ech_decide(BLAS "OpenBLAS" "${lacking}" "${OPENBLAS_LIBRARY}")

# Packings of texts besides gzip, and formats of images. Where one is missing, its files are refused.
foreach(row "ZSTD|zstd|libzstd-dev|zstd|zstd.h" "LZMA|xz|liblzma-dev|lzma|lzma.h"
        "BZIP2|bzip2|libbz2-dev|bz2|bzlib.h" "PNG|libpng|libpng-dev|png|png.h"
        "JPEG|libjpeg|libjpeg62-turbo-dev|jpeg|jpeglib.h")
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 name)
  list(GET row 1 what)
  list(GET row 2 package)
  list(GET row 3 library)
  list(GET row 4 header)
  ech_option(${name} "${what}")
  set(lacking)
  if(ECH_WANTS_${name})
    find_library(${name}_LIBRARY ${library})
    find_path(${name}_INCLUDE ${header})
    if(NOT ${name}_LIBRARY OR NOT ${name}_INCLUDE)
      set(lacking "not found (Debian's ${package}); its files are refused")
    endif()
  endif()
  ech_decide(${name} "${what}" "${lacking}" "${${name}_LIBRARY}")
endforeach()
