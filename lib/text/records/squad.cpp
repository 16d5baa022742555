#include "text/records/squad.h"

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/text_bytes.h"

namespace mh::text {

namespace {

using nlohmann::json;

// A position in the files, for messages.
struct FileLocation {
  std::string file;
  size_t article = 0, paragraph = 0;  // numbers from 1; 0: outside of all articles or paragraphs
  std::string title, question;

  std::string text() const {
    std::string out = file;
    if (article > 0) out += str(": article ", article, title.empty() ? "" : " (" + title + ")");
    if (paragraph > 0) out += str(", paragraph ", paragraph);
    if (!question.empty()) out += ", question " + question;
    return out;
  }
  [[noreturn]] void refuse(const std::string& expected, const std::string& found,
                           const std::string& advice = "name a file of SQuAD, such as train-v1.1.json") const {
    refuse_input(text(), expected, found, advice);
  }
};

json parse_squad_json(const std::string& bytes, const std::string& file) {
  validate_text(bytes, file);
  return parse_json<json>(bytes, file, "the JSON of SQuAD",
                          "get the file again, or name a file of SQuAD, such as train-v1.1.json");
}

enum class EntryType { list, text, whole_number, boolean };

const char* describe_type(EntryType type) {
  switch (type) {
    case EntryType::list:
      return "a list";
    case EntryType::text:
      return "text";
    case EntryType::whole_number:
      return "a whole number";
    default:
      return "true or false";
  }
}

bool has_type(const json& value, EntryType type) {
  switch (type) {
    case EntryType::list:
      return value.is_array();
    case EntryType::text:
      return value.is_string();
    case EntryType::whole_number:
      return value.is_number_integer();
    default:
      return value.is_boolean();
  }
}

// Returns the entry `key` of a JSON object, or null if there is none. Throws Error(input) if `object` is not a JSON
// object, or if the entry is not of the type `type`.
const json* find_entry(const json& object, const char* key, EntryType type, const FileLocation& location) {
  if (!object.is_object()) location.refuse(str("an object with the entry '", key, "'"), object.type_name());
  const auto it = object.find(key);
  if (it == object.end()) return nullptr;
  if (!has_type(*it, type)) location.refuse(str("the entry '", key, "' as ", describe_type(type)), it->type_name());
  return &*it;
}

// Returns the entry `key` of a JSON object. Throws Error(input) if it is missing or not of the type `type`.
const json& require_entry(const json& object, const char* key, EntryType type, const FileLocation& location) {
  const json* value = find_entry(object, key, type, location);
  if (value == nullptr) location.refuse(str("the entry '", key, "' as ", describe_type(type)), "no such entry");
  return *value;
}

// Returns the text of the entry `key`. Throws Error(input) for text with NUL, which tokenizers do not accept, and for
// text of INT32_MAX bytes or more, since shards store byte offsets as int32.
std::string require_text(const json& object, const char* key, const FileLocation& location) {
  auto text = require_entry(object, key, EntryType::text, location).get<std::string>();
  if (text.find('\0') != text.npos)
    location.refuse(str("text without NUL in '", key, "'"), "a NUL byte", "remove NUL bytes");
  if (text.size() >= INT32_MAX)
    location.refuse(str("less than 2 GiB in '", key, "'"), human_bytes(text.size()), "split or shorten the text");
  return text;
}

// Returns the byte offset of each character (code point), followed by the length of the text in bytes.
std::vector<uint32_t> character_offsets(const std::string& text) {
  std::vector<uint32_t> offsets;
  for (size_t i = 0; i < text.size(); ++i)
    if (!is_continuation_byte(text[i])) offsets.push_back(static_cast<uint32_t>(i));
  offsets.push_back(static_cast<uint32_t>(text.size()));
  return offsets;
}

class SquadReader {
 public:
  explicit SquadReader(const SquadOptions& options) : options_(options) {}

  void add(const std::string& file) {
    location_ = {input_name(file), 0, 0, "", ""};
    const std::string bytes = read_text_file(file);
    squad_.num_bytes += bytes.size();
    const json root = parse_squad_json(bytes, location_.file);
    for (const json& article : require_entry(root, "data", EntryType::list, location_)) {
      ++location_.article;
      location_.paragraph = 0;
      const json* title = find_entry(article, "title", EntryType::text, location_);
      location_.title = title == nullptr ? "" : title->get<std::string>();
      for (const json& paragraph : require_entry(article, "paragraphs", EntryType::list, location_)) {
        ++location_.paragraph;
        add_paragraph(paragraph);
      }
    }
  }

  Squad finish() {
    if (squad_.num_questions == 0) location_.refuse("questions", "none", "name a file with at least one question");
    const auto max_missing = options_.missing_fraction * static_cast<double>(squad_.num_answers);
    if (static_cast<double>(squad_.num_answers_without_range) > max_missing)
      first_missing_location_.refuse(
          str("at least ", 100 * (1 - options_.missing_fraction),
              "% of the answers to occur in the paragraph at their 'answer_start'"),
          str(squad_.num_answers - squad_.num_answers_without_range, " of ", count_of(squad_.num_answers, "answer"),
              "; the first mismatch is in this question"),
          "check that answer_start counts Unicode code points, or raise --missing-fraction");
    return std::move(squad_);
  }

 private:
  void add_paragraph(const json& object) {
    SquadParagraph paragraph{require_text(object, "context", location_), {}, location_.text()};
    const std::vector<uint32_t> offsets = character_offsets(paragraph.text);
    for (const json& question : require_entry(object, "qas", EntryType::list, location_)) {
      paragraph.questions.push_back(read_question(question, paragraph.text, offsets));
      location_.question.clear();
    }
    if (!paragraph.questions.empty()) squad_.paragraphs.push_back(std::move(paragraph));
  }

  SquadQuestion read_question(const json& object, const std::string& text, const std::vector<uint32_t>& offsets) {
    SquadQuestion q;
    location_.question = q.id = require_entry(object, "id", EntryType::text, location_).get<std::string>();
    if (!ids_.insert(q.id).second)
      location_.refuse("a unique id", "the id of an earlier question",
                       "remove the repeated question, or name each file once");
    q.text = require_text(object, "question", location_);
    const json* is_unanswerable = find_entry(object, "is_impossible", EntryType::boolean, location_);
    q.is_unanswerable = is_unanswerable != nullptr && is_unanswerable->get<bool>();
    for (const json& answer : require_entry(object, "answers", EntryType::list, location_))
      q.answers.push_back(read_answer(answer, text, offsets));
    if (q.is_unanswerable && options_.unanswerable_handling == "refuse")
      location_.refuse("a question that the paragraph answers", "a question with 'is_impossible', as in SQuAD 2.0",
                       "pass --unanswerable keep to keep unanswerable questions");
    if (q.is_unanswerable != q.answers.empty())
      location_.refuse(q.is_unanswerable ? "no answers to a question with 'is_impossible'" : "at least one answer",
                       count_of(q.answers.size(), "answer"), "correct 'is_impossible' or 'answers' of the question");
    ++squad_.num_questions;
    squad_.num_answers += q.answers.size();
    squad_.num_unanswerable += q.is_unanswerable ? 1 : 0;
    return q;
  }

  GoldAnswer read_answer(const json& object, const std::string& text, const std::vector<uint32_t>& offsets) {
    GoldAnswer answer{require_entry(object, "text", EntryType::text, location_).get<std::string>(), {}};
    const json& answer_start = require_entry(object, "answer_start", EntryType::whole_number, location_);
    const auto num_characters = static_cast<int64_t>(offsets.size()) - 1;
    const bool exceeds_int64 = answer_start.is_number_unsigned() && answer_start.get<uint64_t>() > INT64_MAX;
    const int64_t offset = exceeds_int64 ? INT64_MAX : answer_start.get<int64_t>();
    if (offset < 0 || offset >= num_characters)
      location_.refuse(str("'answer_start' within the ", count_of(num_characters, "character"), " of the paragraph"),
                       answer_start.dump(), "count characters (Unicode code points) from 0");
    const uint32_t begin = offsets[static_cast<size_t>(offset)];
    if (!answer.text.empty() && text.compare(begin, answer.text.size(), answer.text) == 0) {
      answer.byte_range = TextRange{begin, begin + static_cast<uint32_t>(answer.text.size())};
    } else if (++squad_.num_answers_without_range == 1) {
      first_missing_location_ = location_;
    }
    return answer;
  }

  SquadOptions options_;
  Squad squad_;
  FileLocation location_, first_missing_location_;
  std::set<std::string> ids_;
};

}  // namespace

Squad read_squad(const std::vector<std::string>& files, const SquadOptions& options) {
  SquadReader reader(options);
  for (const std::string& file : files) reader.add(file);
  return reader.finish();
}

}  // namespace mh::text
