#include "distributed/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "ceil_div.h"

namespace mh::distributed {

namespace {

// Returns the build id in a segment of notes of an ELF file, in hexadecimal; "" if the segment has none.
std::string build_id_in(const uint8_t* notes, size_t size) {
  const char* digits = "0123456789abcdef";
  for (size_t offset = 0; offset + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes + offset, sizeof header);
    const size_t name_offset = offset + sizeof header,
                 content_offset = name_offset + round_up<size_t>(header.n_namesz, 4);
    if (content_offset + header.n_descsz > size) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(notes + name_offset, "GNU", 4) == 0) {
      std::string text;
      for (size_t i = 0; i < header.n_descsz; ++i) {
        const uint8_t byte = notes[content_offset + i];
        text += {digits[byte >> 4], digits[byte & 15]};
      }
      return text;
    }
    offset = content_offset + round_up<size_t>(header.n_descsz, 4);
  }
  return "";
}

// Appends the build id of a loaded file to the std::string `ids`, if the file is the program or belongs to this
// project.
int append_build_id(dl_phdr_info* file, size_t /*size*/, void* ids) {
  const std::string_view name = file->dlpi_name;
  if (!name.empty() && name.find("libmultihead") == std::string_view::npos) return 0;
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const auto& segment = file->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const uint8_t*>(file->dlpi_addr + segment.p_vaddr);
    const std::string id = build_id_in(notes, segment.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(ids) += (static_cast<std::string*>(ids)->empty() ? "" : " ") + id;
  }
  return 0;
}

}  // namespace

std::string build_id() {
  std::string ids;
  dl_iterate_phdr(append_build_id, &ids);
  return ids;
}

}  // namespace mh::distributed
