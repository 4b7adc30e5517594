# Compiles bpf/*.bpf.c, links them into one object and generates its skeleton.
find_program(BPF_CLANG NAMES clang-14 clang REQUIRED)
find_program(BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)
find_program(BPF_STRIP NAMES llvm-strip-14 llvm-strip)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64")
  set(BPF_ARCH x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(BPF_ARCH arm64)
else()
  message(FATAL_ERROR "no argument layout for ${CMAKE_SYSTEM_PROCESSOR}; see bpf/arch.h")
endif()

set(BPF_OUT ${CMAKE_BINARY_DIR}/bpf)
file(MAKE_DIRECTORY ${BPF_OUT})
file(GLOB bpf_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bpf/*.h)
file(GLOB bpf_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bpf/*.bpf.c)

set(bpf_objects)
foreach(source ${bpf_sources})
  get_filename_component(name ${source} NAME_WLE)
  set(object ${BPF_OUT}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${BPF_CLANG} -g -O2 -std=gnu11 -target bpf -mcpu=v3 -D__TARGET_ARCH_${BPF_ARCH}
            -Wall -Wextra -Werror -Wno-unused-parameter -I${CMAKE_SOURCE_DIR}/bpf
            -I${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -c ${source} -o ${object}
    DEPENDS ${source} ${bpf_headers}
    COMMENT "BPF ${name}" VERBATIM)
  list(APPEND bpf_objects ${object})
endforeach()

# The definitions first: bpftool 7.1 misplaces maps that it meets as extern before.
list(REMOVE_ITEM bpf_objects ${BPF_OUT}/maps.bpf.o)
list(PREPEND bpf_objects ${BPF_OUT}/maps.bpf.o)

set(BPF_OBJECT ${BPF_OUT}/ingero.bpf.o)
set(BPF_SKELETON ${BPF_OUT}/ingero.skel.h)
add_custom_command(OUTPUT ${BPF_OBJECT} ${BPF_SKELETON}
  COMMAND ${BPFTOOL} gen object ${BPF_OBJECT} ${bpf_objects}
  COMMAND ${BPFTOOL} gen skeleton ${BPF_OBJECT} name ingero_bpf > ${BPF_SKELETON}
  DEPENDS ${bpf_objects} COMMENT "BPF link and skeleton" VERBATIM)
add_custom_target(ingero_bpf_skeleton DEPENDS ${BPF_SKELETON})
