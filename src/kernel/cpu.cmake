# ech_kernel_cpu: loops are compiled once per instruction set and type, what only calls the library
# once.
set(ECH_ISAS "native" CACHE STRING
    "instruction sets of the CPU kernels: native, which is portable and this machine's own, or all")
set_property(CACHE ECH_ISAS PROPERTY STRINGS native all)
# Comparisons may trap on NaN. If that matters, gcc vectorizes no loop with a clamp, and every
# exponential has one.
set(cpu_options ${OpenMP_C_FLAGS} -ffp-contract=fast -fno-trapping-math)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # the test kernel/vectorized reads the reports
  # Threaded jumps turn GELU's clamp into a second, masked division by a huge constant. Its results
  # are denormal for small inputs, which triples the time on some processors.
  list(APPEND cpu_options -fopt-info-vec-optimized-missed -fno-thread-jumps)
endif()
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  # The simd pragmas allow vectors; a compiler that declines is merely slower.
  list(APPEND cpu_options -Wno-pass-failed)
endif()

# Sets that ECHELON_ISA may name, and for each the objects that its rows are made of (cpu/sets.c).
set(known portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND known avx2 avx512 avx512bf16)
endif()
if(ECH_ISAS STREQUAL "all")
  set(built ${known})
elseif(ECH_ISAS STREQUAL "native")
  set(built portable)
  if(known STREQUAL "portable")
    set(ECH_NATIVE_ISA portable)
  elseif(NOT DEFINED ECH_NATIVE_ISA)
    try_run(runs compiles ${CMAKE_CURRENT_BINARY_DIR}/native
            ${PROJECT_SOURCE_DIR}/cmake/native_isa.c
            CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}/src
            COMPILE_OUTPUT_VARIABLE said RUN_OUTPUT_VARIABLE printed)
    string(STRIP "${printed}" printed)
    if(NOT printed IN_LIST known)
      message(FATAL_ERROR "this machine's instruction set is unknown (${said}${printed}): "
                          "use -DECH_ISAS=all")
    endif()
    set(ECH_NATIVE_ISA ${printed} CACHE INTERNAL "largest instruction set of this machine")
  endif()
  list(APPEND built ${ECH_NATIVE_ISA})
  list(REMOVE_DUPLICATES built)
else()
  message(FATAL_ERROR "ECH_ISAS=${ECH_ISAS}: use native or all")
endif()
list(JOIN built ", " printed)
message(STATUS "CPU kernels: ${printed}")

set(isa_portable)
set(isa_avx2 -march=x86-64-v3)
set(isa_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(isa_avx512bf16 ${isa_avx512} -mavx512bf16)

file(GLOB cpu_sources CONFIGURE_DEPENDS cpu/*.c)
set(cpu_library cpu/conv2d.c cpu/conv2d_pixels.c cpu/conv2d_strips.c cpu/gemm.c
    cpu/grouped_library.c cpu/library.c cpu/matmul.c) # these call oneDNN, gemm.c also OpenBLAS
list(TRANSFORM cpu_library PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
list(REMOVE_ITEM cpu_sources ${cpu_library} ${CMAKE_CURRENT_SOURCE_DIR}/cpu/sets.c)
set(sources_f32 ${cpu_sources})
if(ECH_HAS_ONEDNN)
  list(FILTER sources_f32 EXCLUDE REGEX "/tiled\\.c$")
endif()
set(sources_halves ${cpu_sources})
list(FILTER sources_halves EXCLUDE REGEX "/(batch_norm|pool|thin)\\.c$")
set(sources_bf16 ${sources_halves})
set(sources_f16 ${sources_halves})

add_library(ech_kernel_cpu STATIC cpu/sets.c)
target_include_directories(ech_kernel_cpu PRIVATE ${PROJECT_SOURCE_DIR}/src)
if(ECH_HAS_ONEDNN)
  target_sources(ech_kernel_cpu PRIVATE ${cpu_library})
  target_compile_options(ech_kernel_cpu PRIVATE ${cpu_options})
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    ech_keep_reports(ech_kernel_cpu C)
  endif()
  target_compile_definitions(ech_kernel_cpu PRIVATE ECH_HAS_ONEDNN)
  target_include_directories(ech_kernel_cpu SYSTEM PRIVATE ${DNNL_INCLUDE})
  if(ECH_HAS_BLAS)
    target_compile_definitions(ech_kernel_cpu PRIVATE ECH_HAS_BLAS)
    target_include_directories(ech_kernel_cpu SYSTEM PRIVATE ${OPENBLAS_INCLUDE})
  endif()
endif()

function(add_cpu isa real)
  string(TOUPPER ${real} REAL)
  set(target ech_kernel_cpu_${isa}_${real})
  if(TARGET ${target})
    return()
  endif()
  add_library(${target} OBJECT ${sources_${real}})
  target_compile_definitions(${target} PRIVATE ECH_ISA=${isa} ECH_REAL_${REAL})
  target_compile_options(${target} PRIVATE ${cpu_options} ${isa_${isa}})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    ech_keep_reports(${target} C)
  endif()
  if(ECH_HAS_ONEDNN)
    target_compile_definitions(${target} PRIVATE ECH_HAS_ONEDNN)
    target_include_directories(${target} SYSTEM PRIVATE ${DNNL_INCLUDE})
  endif()
  target_sources(ech_kernel_cpu PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()
foreach(isa ${built})
  target_compile_definitions(ech_kernel_cpu PRIVATE ECH_BUILDS_${isa})
  set(wide ${isa})
  if(isa STREQUAL "avx512bf16") # in other types it is avx512
    set(wide avx512)
  endif()
  add_cpu(${wide} f32)
  add_cpu(${isa} bf16)
  add_cpu(${wide} f16)
endforeach()
