# Links varve with musl instead of glibc: libc/README.md says why, and what makes that safe.
set(VARVE_MUSL_DIR /usr/lib/x86_64-linux-musl CACHE INTERNAL "Where musl-dev is installed")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64 AND EXISTS ${VARVE_MUSL_DIR}/libc.a)
  set(VARVE_MUSL_DEFAULT ON)
else()
  set(VARVE_MUSL_DEFAULT OFF)
endif()
option(VARVE_MUSL "Link varve with musl (x86-64; Debian's musl-dev)" ${VARVE_MUSL_DEFAULT})
if(NOT VARVE_MUSL)
  message(STATUS "varve is linked with glibc: a launch takes about 7 % longer than with musl")
  return()
endif()

# Not crtbeginT, the one for static programs, which reads the frames at each start to register them:
# the unwinder finds their index (_dl_find_object in glibc_symbols.cc), if it is ever called.
foreach(object crtbegin crtend)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${object}.o
    OUTPUT_VARIABLE VARVE_${object} OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endforeach()
target_sources(varve PRIVATE libc/glibc_symbols.cc)
target_link_options(varve PRIVATE -nostdlib
  ${VARVE_MUSL_DIR}/crt1.o ${VARVE_MUSL_DIR}/crti.o ${VARVE_crtbegin} -Wl,--eh-frame-hdr)
# Stands behind all other libraries. Of this directory, only varve is linked.
set(CMAKE_CXX_STANDARD_LIBRARIES "-lstdc++ -Wl,--start-group -lgcc -lgcc_eh ${VARVE_MUSL_DIR}/libc.a \
-Wl,--end-group ${VARVE_crtend} ${VARVE_MUSL_DIR}/crtn.o")
