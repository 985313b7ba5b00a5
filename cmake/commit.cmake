# Writes the commit that is built into HEADER, which changes only with it. In a tree without git it is
# the one that `git archive` has written into commit.txt; without that it is unknown.
#   cmake -D SOURCE=... -D HEADER=... -P commit.cmake
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS "${SOURCE}/.git")
    execute_process(
        COMMAND "${GIT}" -C "${SOURCE}" describe --always --abbrev=12 "--exclude=*" --dirty
        OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT commit)
    file(READ "${SOURCE}/cmake/commit.txt" commit)
    string(STRIP "${commit}" commit)
    if(NOT commit MATCHES "^[0-9a-f]+$")
        set(commit "unknown")
    endif()
endif()
set(text "#define ECH_COMMIT \"${commit}\"\n")
if(EXISTS "${HEADER}")
    file(READ "${HEADER}" before)
endif()
if(NOT "${before}" STREQUAL "${text}")
    file(WRITE "${HEADER}" "${text}")
endif()
