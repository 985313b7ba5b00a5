# ech_add_fuzz(room noun): the libFuzzer target fuzz_ROOM_NOUN from tests/ROOM/fuzz_NOUN.c, and a
# short test of it that starts from a copy of tests/ROOM/corpus_NOUN (libFuzzer adds to the folder
# that it is given). With the address sanitizer and without a fuzzer, the test ROOM/replay_NOUN calls
# the target with the files of the corpus (tests/replay.c). Other builds have neither. For long, by
# hand:
#   build/fuzz/tests/ROOM/fuzz_ROOM_NOUN CORPUS_COPY
if(ECH_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ECH_FUZZ needs clang: use the preset fuzz or -DCMAKE_C_COMPILER=clang")
  endif()
  # Every room counts its branches, so that the fuzzer sees what an input reaches.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

function(ech_add_fuzz room noun)
  if(ECH_SANITIZE STREQUAL "address" AND NOT ECH_FUZZ)
    set(target replay_${room}_${noun})
    add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${room}/fuzz_${noun}.c
                             ${PROJECT_SOURCE_DIR}/tests/replay.c)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${target} PRIVATE ech_${room})
    add_test(NAME ${room}/replay_${noun}
             COMMAND ${target} ${PROJECT_SOURCE_DIR}/tests/${room}/corpus_${noun})
  endif()
  if(NOT ECH_FUZZ)
    return()
  endif()
  set(target fuzz_${room}_${noun})
  set(folder ${PROJECT_SOURCE_DIR}/tests/${room})
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/corpus_${noun})
  add_executable(${target} ${folder}/fuzz_${noun}.c)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers) # all of them, and nothing else
  endif()
  add_dependencies(fuzzers ${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ech_${room})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  add_custom_command(TARGET ${target} POST_BUILD
                     COMMAND ${CMAKE_COMMAND} -E copy_directory ${folder}/corpus_${noun} ${copy})
  add_test(NAME ${room}/fuzz_${noun}
           COMMAND ${target} -runs=2000 -seed=1 -rss_limit_mb=1024 -timeout=10
                   -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/ ${copy})
  set_tests_properties(${room}/fuzz_${noun} PROPERTIES TIMEOUT 300)
endfunction()
