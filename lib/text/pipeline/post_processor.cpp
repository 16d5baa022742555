#include "text/pipeline/post_processor.h"

#include "text/pipeline/normalizer.h"

namespace mh::text {

namespace {

class PostProcessorParser {
 public:
  explicit PostProcessorParser(int64_t num_tokens) : num_tokens_(num_tokens) {}

  SurroundingTokens parse(const JsonNode& node) {
    for (const JsonNode& stage : node.stages("processors")) {
      const std::string type = stage.type();
      SurroundingTokens tokens;
      if (type == "TemplateProcessing") tokens = parse_template(stage);
      else if (type == "RobertaProcessing" || type == "BertProcessing")
        tokens = parse_model_processing(stage, type == "RobertaProcessing" ? 2 : 1);
      else if (type != "ByteLevel")  // ByteLevel changes only positions
        stage.refuse(
            "a post-processor of the type Sequence, TemplateProcessing, RobertaProcessing, BertProcessing or ByteLevel",
            type.empty() ? abbreviate(*stage.value) : type, kUseSupportedType);
      // A later component surrounds the result of the earlier ones.
      result_.begin.insert(result_.begin.begin(), tokens.begin.begin(), tokens.begin.end());
      result_.end.insert(result_.end.end(), tokens.end.begin(), tokens.end.end());
      if (result_.between.empty()) result_.between = std::move(tokens.between);
    }
    return std::move(result_);
  }

 private:
  int32_t id_of(const JsonNode& node) const {
    if (!node.value->is_number_unsigned() || node.value->get<uint64_t>() >= static_cast<uint64_t>(num_tokens_))
      node.refuse(str("a token id below ", num_tokens_), abbreviate(*node.value));
    return static_cast<int32_t>(node.value->get<uint64_t>());
  }

  // Returns the id of a token in the form ["[CLS]", 101].
  int32_t id_of_pair(const JsonNode& node) const {
    if (!node.value->is_array() || node.value->size() != 2) node.refuse("a token and its id", abbreviate(*node.value));
    return id_of({&(*node.value)[1], node.path + "[1]"});
  }

  // Parses the post-processor of BERT or RoBERTa. `num_separators`: number of separators between two texts.
  SurroundingTokens parse_model_processing(const JsonNode& node, size_t num_separators) const {
    const int32_t separator = id_of_pair(node.at("sep"));
    return {{id_of_pair(node.at("cls"))}, {separator}, std::vector<int32_t>(num_separators, separator)};
  }

  SurroundingTokens parse_template(const JsonNode& node) const {
    SurroundingTokens tokens;
    bool has_text = false;
    const auto add_ids = [&](const JsonNode& element, std::vector<int32_t>& ids) {
      const JsonNode token = node.at("special_tokens").at(element.at("SpecialToken").text("id", ""));
      token.at("ids").for_each_element([&](const JsonNode& id) { ids.push_back(id_of(id)); });
    };
    node.at("single").for_each_element([&](const JsonNode& element) {
      if (!element.at("Sequence").empty()) {
        if (has_text) node.at("single").refuse("a template with one text", "several texts", kUseSupportedType);
        has_text = true;
        return;
      }
      add_ids(element, has_text ? tokens.end : tokens.begin);
    });
    if (!has_text) node.at("single").refuse("a template with one text", "no text", kUseSupportedType);
    if (node.at("pair").empty()) return tokens;
    int num_texts = 0;
    node.at("pair").for_each_element([&](const JsonNode& element) {
      if (!element.at("Sequence").empty()) ++num_texts;
      else if (num_texts == 1) add_ids(element, tokens.between);
    });
    return tokens;
  }

  int64_t num_tokens_;
  SurroundingTokens result_;
};

}  // namespace

SurroundingTokens parse_post_processor(const JsonNode& node, int64_t num_tokens) {
  return PostProcessorParser(num_tokens).parse(node);
}

}  // namespace mh::text
