// Documents of mh-prep lm. The first byte of the input selects JSON lines or another unit; the other bytes are the
// file.
#include "base/file.h"
#include "fuzz/fuzz.h"
#include "text/byte_bpe.h"
#include "text/records/language_modelling.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::text;

// Small buffers: allocating buffers of the default size, 3 MiB, would take most of the time.
constexpr ReadSizes kSmallBuffers = {.batch_bytes = 4096, .chunk_bytes = 4096, .max_line_bytes = 1 << 16};

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const DocumentUnit unit = data[0] % 4 == 1   ? DocumentUnit::blank_line
                            : data[0] % 4 == 2 ? DocumentUnit::file
                                               : DocumentUnit::jsonl;
  const std::string& path = fuzz::memory_file(fuzz::text_of(data + 1, size - 1));
  static const auto tokenizer = learn_byte_bpe({}, kMinByteBpeSize, 1);
  fuzz::check(size, fuzz::kTextFactor, [&] {
    const TextBatches::FindSplit find_split = find_byte_bpe_split;
    TextBatches lines({path}, LineEnds::normalise_crlf, unit == DocumentUnit::jsonl ? nullptr : find_split,
                      kSmallBuffers);
    DocumentBatches documents(lines, unit, find_split, kSmallBuffers);
    io::ShardHeader header = header_of(*tokenizer);
    header.set_kind(text::kTextKind);
    const auto sink = open_sink("/dev/null");
    io::ShardWriter writer(*sink, header);
    encode_lm_documents(documents, *tokenizer, 1, writer);
    writer.finish();
  });
  return 0;
}
