// Settings of a Hugging Face folder, separated by 0x1E: config.json, generation_config.json, special_tokens_map.json,
// chat_template.jinja, tokenizer_config.json. A file with no bytes is not written. Conversion of config.json to the
// settings of each architecture and back; refusals of unsupported models; and the files that a conversion keeps in the
// checkpoint and writes again.
#include <iterator>

#include "base/registry.h"
#include "fuzz/fuzz.h"
#include "huggingface/architecture.h"
#include "huggingface/companion_files.h"
#include "huggingface/refusals.h"
#include "huggingface/text_part.h"

using namespace mh;

namespace {

constexpr const char* kNames[] = {"generation_config.json", "special_tokens_map.json", "chat_template.jinja",
                                  "tokenizer_config.json"};

// Reads the companions as the metadata of a checkpoint: for generation, and for a folder that mh-convert writes.
void check_companions(const std::string& companions, size_t size) {
  fuzz::check(size, fuzz::kTextFactor, [&] { huggingface::end_token_ids(companions, "checkpoint"); });
  fuzz::check(size, fuzz::kTextFactor, [&] {
    io::Json config = {{"eos_token_id", 1}, {"pad_token_id", nullptr}};
    std::map<std::string, std::string> files{{"tokenizer_config.json", "{}"}, {"special_tokens_map.json", "{}"}};
    huggingface::add_companions(companions, "checkpoint", config, files);
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto texts = fuzz::split_records(fuzz::text_of(data, size), 1 + std::size(kNames));
  const std::string& config_text = texts[0];
  for (const auto& name : huggingface::architectures().names())
    fuzz::check(size, fuzz::kTextFactor, [&] {
      const io::JsonConfig config(config_text, "config.json");
      const auto architecture = huggingface::architectures().make(name, "");
      const huggingface::Settings settings = architecture->settings(config, {});
      config.unread_keys();
      architecture->tensor_names(settings);
      architecture->config(huggingface::settings_of(huggingface::toml_of(settings)));
    });
  // The order of mh-convert; the settings of a model for text and images are an object of config.json.
  fuzz::check(size, fuzz::kTextFactor, [&] {
    const io::JsonConfig config(config_text, "config.json");
    huggingface::refuse_unsupported_settings(config);
    if (!huggingface::has_text_part(config)) {
      huggingface::find_architecture(config);
      return;
    }
    const io::JsonConfig part = huggingface::text_part(config);
    const auto architecture = huggingface::find_architecture(part);
    huggingface::refuse_unsupported_settings(part);
    architecture->settings(part, {});
  });
  huggingface::unsupported_part(huggingface::language_model_tensor_name(config_text));  // as the name of a tensor
  const std::string& folder = fuzz::memory_folder(kNames, std::span(texts).subspan(1));
  std::string companions;
  fuzz::check(size, fuzz::kTextFactor,
              [&] { companions = huggingface::read_companions(folder, io::JsonConfig(config_text, "config.json")); });
  check_companions(companions, size);
  check_companions(config_text, size);
  return 0;
}
