# ech_embed(target symbol file...): the ASCII texts of the files, one after the other, with a NUL, as
# `const char symbol[]` of target. The build runs this file as a script, with SYMBOL, INPUT and
# OUTPUT.
if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "|" ";" INPUT "${INPUT}")
  foreach(file ${INPUT})
    file(READ ${file} more HEX)
    string(APPEND bytes ${more})
  endforeach()
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(WRITE ${OUTPUT} "extern const char ${SYMBOL}[];\n"
                       "const char ${SYMBOL}[] = {\n${bytes}0};\n")
  return()
endif()

function(ech_embed target symbol)
  set(made ${PROJECT_BINARY_DIR}/generated/embedded/${symbol}.c)
  list(JOIN ARGN "|" input)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  add_custom_command(OUTPUT ${made}
                     COMMAND ${CMAKE_COMMAND} -DSYMBOL=${symbol} "-DINPUT=${input}" -DOUTPUT=${made}
                             -P ${script}
                     DEPENDS ${ARGN} ${script} VERBATIM)
  target_sources(${target} PRIVATE ${made})
endfunction()
