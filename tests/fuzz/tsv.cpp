// Tab-separated examples of GLUE. The first byte of the input selects the task and whether malformed lines are dropped;
// the other bytes are the file.
#include "base/file.h"
#include "fuzz/fuzz.h"
#include "text/records/classification.h"
#include "text/records/glue.h"
#include "text/text_batches.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::text;

// Small buffers: allocating buffers of the default size, 3 MiB, would take most of the time.
constexpr ReadSizes kSmallBuffers = {.batch_bytes = 4096, .chunk_bytes = 4096, .max_line_bytes = 1 << 16};

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const GlueTask& task = glue_tasks()[data[0] % glue_tasks().size()];
  const std::string& path = fuzz::memory_file(fuzz::text_of(data + 1, size - 1));
  static const auto tokenizer = make_byte_tokenizer();
  fuzz::check(size, fuzz::kTextFactor, [&] {
    TextBatches batches({path}, LineEnds::normalise_crlf, nullptr, kSmallBuffers);
    io::ShardHeader header = header_of(*tokenizer);
    set_examples_header(header, task.example_task);
    const auto sink = open_sink("/dev/null");
    io::ShardWriter writer(*sink, header);
    const FindColumns columns = [&](const std::vector<std::string>& fields, const std::string& where) {
      return glue_columns(task, {}, fields, where);
    };
    encode_examples(batches, columns, task.example_task, data[0] >= 128, *tokenizer, 1, writer);
    writer.finish();
  });
  return 0;
}
