set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

option(ECH_TESTS "build the tests" ON)
option(ECH_FUZZ "build the libFuzzer targets (needs clang)" OFF)
set(ECH_SANITIZE "" CACHE STRING "sanitizers: empty, address (with undefined), or thread")
option(ECH_POISON "fill memory outside of values' lifetimes with NaN patterns" OFF)

# For C alone: kernels for GPUs are compiled by others.
add_compile_options("$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>"
                    "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes;-Wswitch-enum;-Werror>"
                    "$<$<COMPILE_LANGUAGE:C>:-fno-math-errno;-fstack-protector-strong>")
add_compile_definitions(_GNU_SOURCE ECH_VERSION="${PROJECT_VERSION}")
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1")
# Position-independent, since programs and the shared library have the same objects, and against files that overflow
# something after all; so are relocation tables that cannot be written, and checks in libc (which want optimisation, and
# which sanitizers do better).
add_compile_options("$<IF:$<COMPILE_LANGUAGE:CUDA>,-Xcompiler=-fPIC,-fPIC>")
add_link_options("$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>" -Wl,-z,relro,-z,now)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT ECH_SANITIZE)
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
set(CMAKE_C_FLAGS_DEBUG "-O1 -g3")
if(ECH_SANITIZE)
  set(CMAKE_C_FLAGS_DEBUG "-O1 -g1") # lines are all that a report names; macros and types double the build's time
endif()

if(ECH_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # What the address sanitizer sees as well, where it does harm: a quarter of the time that gcc takes. Fuzzers have them.
    add_compile_options(-fno-sanitize=null,object-size,pointer-overflow)
  endif()
elseif(ECH_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(ECH_SANITIZE)
  message(FATAL_ERROR "ECH_SANITIZE=${ECH_SANITIZE}: use address or thread")
endif()
# Hundreds of test programs are linked: lld takes a fifth of bfd's time.
if(NOT CMAKE_CROSSCOMPILING) # a cross compiler does not find it
  find_program(ECH_LLD ld.lld)
endif()
if(ECH_LLD)
  add_link_options(-fuse-ld=lld -Wl,--threads=1)
endif()
# A second build of the same sources, also in another folder, takes a compiler cache's objects.
find_program(ECH_CCACHE ccache)
if(ECH_CCACHE AND NOT DEFINED CMAKE_C_COMPILER_LAUNCHER)
  # ccache fails where it cannot write its cache: in a home folder that is read-only or missing.
  file(WRITE ${PROJECT_BINARY_DIR}/ccache/trial.c "int ech_trial;\n")
  execute_process(COMMAND ${ECH_CCACHE} ${CMAKE_C_COMPILER} -c trial.c -o trial.o
                  WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/ccache
                  RESULT_VARIABLE ech_ccache_failed OUTPUT_QUIET ERROR_QUIET)
  if(ech_ccache_failed)
    message(STATUS "ccache: not used, since it cannot write its cache (CCACHE_DIR names a folder for it)")
  else()
    set(CMAKE_C_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  ${ECH_CCACHE})
  endif()
endif()
if(ECH_POISON)
  add_compile_definitions(ECH_POISON=1)
endif()
