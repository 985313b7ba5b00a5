# The target's objects get reports of the compiler beside them (cmake/keep_report.sh).
function(ech_keep_reports target language)
  set(launcher sh ${PROJECT_SOURCE_DIR}/cmake/keep_report.sh ${CMAKE_${language}_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES ${language}_COMPILER_LAUNCHER "${launcher}")
endfunction()
