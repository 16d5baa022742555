// Runs SentencePiece's trainer in a child process (base/child.h), since the trainer calls exit() if a check of its own
// state fails, and may crash on very long words. The child receives the text line by line and returns the model; the
// parent reads and checks the text, and translates the trainer's messages.
#include "text/learn_sentencepiece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "base/child.h"
#include "base/error.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/text.h"
#include "base/unicode.h"

// The library exports this function, but the installed headers do not declare it.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}

namespace mh::text {

namespace {

constexpr std::string_view kUnknownMark = "\xe2\x96\x85";  // U+2585, which the trainer uses for unknown characters
constexpr std::string_view kWordStart = "\xe2\x96\x81";    // U+2581, which the trainer uses for spaces
constexpr std::string_view kUnknownName = "<unk>";         // the trainer reads <unk> as one character without a piece
constexpr std::string_view kReservedNames[] = {kUnknownName, "<s>", "</s>"};
// Marks lines that may contain a word too long for BPE. The child receives a marked line as NUL, index of the line
// among the marked lines, NUL, text. Other lines contain no NUL. File names stay in the parent, since they may contain
// any byte.
constexpr char kLongLineMark = '\0';
// First byte of the child's result; the comment on each value describes the bytes that follow. The child exits with
// status 0 after each of these results, also after an error.
enum ResultKind : char {
  kModel = 'M',     // the model
  kStatus = 'S',    // the library's error status
  kLongWord = 'W',  // index of the marked line, a space, number of characters of its longest word
};
// Maximum number of characters that compatibility normalisation yields for a byte. U+FDFA reaches this maximum: its
// three bytes become 18 characters.
constexpr size_t kMaxCharactersPerByte = 6;

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation_byte(c); }));
}

// ---- Functions and classes of the child process ----

// Exception for a word too long for BPE.
struct LongWord {
  uint64_t line_index;  // index of the line among the marked lines
  size_t num_characters;
};

// Throws std::logic_error unless `status`, the result of a call of the library in WordLengthMeter, is OK. An error is a
// bug: the character model always trains on the line "a", and its normaliser accepts every text.
void require_ok(const sentencepiece::util::Status& status) {
  if (!status.ok()) throw std::logic_error("SentencePiece's normaliser: " + status.ToString());
}

// The single line "a", which suffices to train a character model.
class SingleLineIterator : public sentencepiece::SentenceIterator {
 public:
  bool done() const override { return is_done_; }
  void Next() override { is_done_ = true; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::string line_ = "a";
  bool is_done_ = false;
};

// Measures the longest word of a line after SentencePiece's normalisation. The installed headers do not declare the
// normaliser, but the pieces of a character model are the normalised text.
class WordLengthMeter {
 public:
  WordLengthMeter() {
    std::string model;
    SingleLineIterator line;
    sentencepiece::logging::SetMinLogLevel(2);
    const auto train_status =
        sentencepiece::SentencePieceTrainer::Train("--model_type=char --vocab_size=16", &line, &model);
    sentencepiece::logging::SetMinLogLevel(0);
    require_ok(train_status);
    require_ok(character_model_.LoadFromSerializedProto(model));
  }
  // Returns the number of characters of the longest word.
  size_t max_word_characters(const std::string& line) const {
    std::vector<std::string> pieces;
    require_ok(character_model_.Encode(line, &pieces));
    size_t max_length = 0, word_length = 0;
    for (const std::string& piece : pieces) {  // consecutive unknown characters are one piece
      word_length = piece == kWordStart ? 0 : word_length + count_characters(piece);
      max_length = std::max(max_length, word_length);
    }
    return max_length;
  }

 private:
  sentencepiece::SentencePieceProcessor character_model_;
};

// The lines that the parent sends. Replaces U+2585 by <unk>, and throws LongWord for a marked line with a word too long
// for BPE.
class InputLineIterator : public sentencepiece::SentenceIterator {
 public:
  explicit InputLineIterator(ChildInput& input) : input_(input) { Next(); }
  bool done() const override { return is_done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    is_done_ = !input_.read_line(line_);
    if (!is_done_ && !line_.empty() && line_[0] == kLongLineMark) remove_mark_and_check_words();
    for (size_t offset = 0; (offset = line_.find(kUnknownMark, offset)) != line_.npos; offset += kUnknownName.size())
      line_.replace(offset, kUnknownMark.size(), kUnknownName);
  }

 private:
  // Removes the mark of a marked line, and throws LongWord if the line has a word too long for BPE.
  void remove_mark_and_check_words() {
    const size_t end = line_.find(kLongLineMark, 1);
    uint64_t line_index = 0;
    if (end == line_.npos ||
        std::from_chars(line_.data() + 1, line_.data() + end, line_index).ptr != line_.data() + end)
      throw std::logic_error("the number of a long line is damaged");
    line_.erase(0, end + 1);
    if (!word_length_meter_) word_length_meter_.emplace();
    const size_t num_characters = word_length_meter_->max_word_characters(line_);
    if (num_characters > static_cast<size_t>(kMaxBpeWordCharacters)) throw LongWord{line_index, num_characters};
  }
  ChildInput& input_;
  std::optional<WordLengthMeter> word_length_meter_;
  std::string line_;
  bool is_done_ = false;
};

std::string train(const std::string& arguments, ChildInput& input) {
  sentencepiece::logging::SetMinLogLevel(0);  // 0 enables all messages; the parent reads them
  InputLineIterator lines(input);
  std::string model;
  try {
    const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
    return status.ok() ? static_cast<char>(kModel) + model : static_cast<char>(kStatus) + status.ToString();
  } catch (const LongWord& word) {
    return str(static_cast<char>(kLongWord), word.line_index, ' ', word.num_characters);
  }
}

// ---- Functions and classes of the parent process ----

// Returns the number after `label` in a message of the library; nullopt if the message has no `label` or no number
// after it.
std::optional<double> number_after(std::string_view text, std::string_view label) {
  const size_t offset = text.find(label);
  if (offset == text.npos) return {};
  const char* begin = text.data() + offset + label.size();
  double number = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc() || end == begin) return {};
  return number;
}

// Returns a message of the library without file, line and level: "trainer_interface.cc(606) LOG(INFO) Alphabet size=61"
// becomes "Alphabet size=61", and the failed check "trainer_interface.cc(428) [!sentences_.empty()] " becomes
// "[!sentences_.empty()] ".
std::string_view strip_log_prefix(std::string_view line) {
  for (std::string_view mark : {" LOG(", ".cc(", ".h("}) {
    const size_t begin = line.find(mark);
    const size_t end = begin == line.npos ? begin : line.find(") ", begin);
    if (end != line.npos) return line.substr(end + 2);
  }
  return line;
}

// Parses the messages that the trainer prints to standard error.
class TrainerMessages {
 public:
  explicit TrainerMessages(int64_t num_pieces) : progress_("pieces", num_pieces, "pieces") {}

  void parse_line(std::string_view line) {
    const std::string_view text = strip_log_prefix(line);
    log_detail("SentencePiece: " + std::string(text));
    if (const auto n = number_after(text, "Loaded all ")) num_loaded_lines_ = static_cast<uint64_t>(*n);
    if (const auto n = number_after(text, "Alphabet size=")) alphabet_size_ = static_cast<int64_t>(*n);
    if (const auto n = number_after(text, "Final character coverage=")) coverage_ = *n;
    if (text.starts_with("Added: "))
      if (const auto n = number_after(text, " size=")) progress_.update(static_cast<int64_t>(*n));
    // The trainer makes these checks before it logs the size of the alphabet.
    for (const char* check : {"[!sentences_.empty()]", "[!required_chars_.empty()]"})
      if (text.starts_with(check)) alphabet_size_ = 0;
  }

  std::optional<uint64_t> num_loaded_lines() const { return num_loaded_lines_; }
  std::optional<int64_t> alphabet_size() const { return alphabet_size_; }
  std::optional<double> coverage() const { return coverage_; }
  void clear_progress() { progress_.clear(); }

 private:
  ProgressLine progress_;
  std::optional<uint64_t> num_loaded_lines_;
  std::optional<int64_t> alphabet_size_;
  std::optional<double> coverage_;
};

// Counts the lines passed to add(), and stores file and line number of the first line.
struct LineCount {
  uint64_t num_lines = 0;
  std::string first_location;  // "FILE:LINE"
  void add(const std::string& file, uint64_t line) {
    std::string location = str(file, ":", line);
    if (location == last_location_) return;  // another segment of the same long line
    last_location_ = std::move(location);
    if (num_lines++ == 0) first_location = last_location_;
  }
  std::string text() const { return str(count_with_commas(num_lines, "line"), ", first ", first_location); }

 private:
  std::string last_location_;
};

// Sends the text to the child process, and collects line numbers and counts for messages to the user.
class TrainingText {
 public:
  TrainingText(TextBatches& text, bool marks_long_lines) : text_(text), marks_long_lines_(marks_long_lines) {}

  // Sends all lines that have words to `child`; returns early if the trainer stops reading.
  void send_to(Child& child) {
    ProgressLine progress("read", static_cast<int64_t>(text_.expected_bytes()), "bytes");
    TextBatch batch;
    std::string lines;
    int64_t num_bytes = 0;
    while (next(batch)) {
      lines.clear();
      for (const auto& s : batch.segments)
        add_line(batch.file, s.line_number, std::string_view(batch.text).substr(s.begin, s.end - s.begin), lines);
      num_bytes += static_cast<int64_t>(batch.input_bytes);
      progress.update(num_bytes);
      if (!child.write(lines)) return;
    }
  }
  // Reads batches until one contains a word; returns false if the text has no word.
  bool read_to_first_word() {
    while (!has_words(first_batch_)) {
      if (!text_.next(first_batch_)) return false;
      check_text(first_batch_);
    }
    is_first_batch_pending_ = true;
    return true;
  }
  uint64_t num_lines() const { return num_lines_; }
  // Returns file and line number of the marked line with the index `line_index`.
  const std::string& long_line_location(size_t line_index) const { return long_line_locations_.at(line_index); }
  // Returns file, line and length of the longest word, such as "text:2, 70,000 bytes".
  std::string longest_word_text() const {
    return str(longest_word_location_, ", ", with_commas(static_cast<int64_t>(longest_word_bytes_)), " bytes");
  }
  // Logs how many lines have characters or names that SentencePiece reserves, and where the first such line is.
  void log_reserved_text() const {
    if (unknown_mark_lines_.num_lines > 0)
      log_info("U+2585, which SentencePiece reserves, gets no piece: " + unknown_mark_lines_.text());
    if (reserved_name_lines_.num_lines > 0)
      log_info("<unk>, <s> and </s>, which SentencePiece reserves, count as unknown characters: " +
               reserved_name_lines_.text());
    if (word_start_lines_.num_lines > 0)
      log_info("U+2581, which SentencePiece reserves, is read as a space: " + word_start_lines_.text());
  }

 private:
  static bool has_words(const TextBatch& batch) { return batch.text.find_first_not_of(' ') != std::string::npos; }
  bool next(TextBatch& batch) {
    if (is_first_batch_pending_) {
      is_first_batch_pending_ = false;
      batch = std::move(first_batch_);
      return true;
    }
    if (!text_.next(batch)) return false;
    check_text(batch);
    return true;
  }
  // Counts a line and appends it to `out`, with kLongLineMark if a word may be too long for BPE. Ignores a line without
  // words.
  void add_line(const std::string& file, uint64_t line_number, std::string_view line, std::string& out) {
    if (line.find_first_not_of(' ') == line.npos) return;
    ++num_lines_;
    const auto contains = [&](std::string_view mark) { return line.find(mark) != line.npos; };
    if (contains(kUnknownMark)) unknown_mark_lines_.add(file, line_number);
    if (contains(kWordStart)) word_start_lines_.add(file, line_number);
    if (std::any_of(std::begin(kReservedNames), std::end(kReservedNames), contains))
      reserved_name_lines_.add(file, line_number);
    const size_t max_word_bytes = longest_word_bytes(line);
    if (max_word_bytes > longest_word_bytes_) {
      longest_word_bytes_ = max_word_bytes;
      longest_word_location_ = str(file, ":", line_number);
    }
    if (marks_long_lines_ && max_word_bytes > static_cast<size_t>(kMaxBpeWordCharacters) / kMaxCharactersPerByte) {
      out += str(kLongLineMark, long_line_locations_.size(), kLongLineMark);
      long_line_locations_.push_back(str(file, ":", line_number));
    }
    out += line;
    out += '\n';
  }
  static size_t longest_word_bytes(std::string_view line) {
    size_t max_word_bytes = 0;
    for (size_t begin = 0; begin < line.size() && line.size() - begin > max_word_bytes;) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      max_word_bytes = std::max(max_word_bytes, end - begin);
      begin = end + 1;
    }
    return max_word_bytes;
  }

  TextBatches& text_;
  const bool marks_long_lines_;
  TextBatch first_batch_;
  bool is_first_batch_pending_ = false;
  uint64_t num_lines_ = 0;
  LineCount unknown_mark_lines_, reserved_name_lines_, word_start_lines_;
  std::vector<std::string> long_line_locations_;
  size_t longest_word_bytes_ = 0;
  std::string longest_word_location_;
};

[[noreturn]] void refuse_long_word(const TrainingText& text, std::string_view reply) {
  const size_t space = reply.find(' ');
  const size_t line_index = std::stoull(std::string(reply.substr(0, space)));
  const int64_t num_characters = std::stoll(std::string(reply.substr(space + 1)));
  refuse_input(
      text.long_line_location(line_index),
      str("words of at most ", with_commas(kMaxBpeWordCharacters), " characters after normalisation, for --type bpe"),
      str("a word of ", with_commas(num_characters), " characters"),
      "split the word by spaces, leave the line out, or use --type unigram");
}

[[noreturn]] void refuse_empty_alphabet() {
  refuse_input(
      "inputs", "text with at least one character that can become a piece", "no such character",
      "add other text: SentencePiece removes control and format characters, and reserves U+2581, U+2585, <unk>, "
      "<s> and </s>");
}

// Throws an Error that explains the trainer's status.
[[noreturn]] void refuse(const VocabularyOptions& options, const std::string& status) {
  const std::string size = str("--size ", options.max_size);
  if (const auto max_size = number_after(status, "set it to a value <= "))
    refuse_input(size, str("at most ", static_cast<int64_t>(*max_size), ", the number of pieces that this text yields"),
                 str(options.max_size), "choose a smaller --size, or give more text");
  // The status contains --size and the required number of pieces, such as "8 vs 61.".
  if (const auto min_size = number_after(status, str(" ", options.max_size, " vs ")))
    refuse_input(size, str("at least ", static_cast<int64_t>(*min_size), ": the special pieces and the characters"),
                 str(options.max_size), "choose a larger --size, or a lower --character-coverage");
  // The trainer's check of insert_id() fails if --size leaves no room for <unk>, <s> and </s>, which have the ids 0
  // to 2.
  if (status.find("[insert_id(") != status.npos)
    refuse_input(size, "at least 4: the special pieces and a character", str(options.max_size),
                 "choose a larger --size");
  refuse_input("SentencePiece's trainer", str("text that gives ", options.max_size, " pieces"), "an error status",
               "choose another --size, give more text, or see SentencePiece's messages with -v");
}

}  // namespace

std::string learn_sentencepiece(const VocabularyOptions& options, TextBatches& text) {
  // The library accepts at most 128 threads.
  const int64_t num_threads = options.num_threads > 0 ? options.num_threads : std::min(num_usable_processors(), 128);
  // TextBatches returns at most 9 MiB of a line at once, so no line exceeds `max_sentence_length`. The default of
  // `input_sentence_size` already disables sampling of lines; passing the option would change the bytes of the model.
  const std::string arguments = str("--model_type=", options.type, " --vocab_size=", options.max_size,
                                    " --character_coverage=", shortest_decimal(options.character_coverage),
                                    " --byte_fallback=", options.byte_fallback ? "true" : "false",
                                    " --num_threads=", num_threads, " --max_sentence_length=16777216");
  TrainingText training_text(text, options.type == "bpe");
  if (!training_text.read_to_first_word())
    refuse_input("inputs", "text with at least one word", "no words", "name a file with text");
  TrainerMessages messages(options.max_size);
  Child child([&](ChildInput& input) { return train(arguments, input); },
              [&](std::string_view line) { messages.parse_line(line); });
  training_text.send_to(child);
  const ChildEnd end = child.finish();
  messages.clear_progress();
  const std::string end_text = "a process that " + end.cause;
  if (end.ran_out_of_memory)
    throw Error(Exit::device, Problem{"SentencePiece's trainer", "enough memory for the text", end_text,
                                      "use a part of the text, or a machine with more memory"});
  // An alphabet of size 1 contains only the space mark U+2581.
  if (end.has_crashed && messages.alphabet_size().value_or(2) <= 1) refuse_empty_alphabet();
  if (end.has_crashed)
    refuse_input("SentencePiece's trainer", "text that the trainer can process", end_text,
                 str("break up the longest word (", training_text.longest_word_text(),
                     ") if this word is much longer than others, choose another --size or a larger "
                     "--character-coverage, or give more text"));
  if (!end.has_succeeded)
    throw Error(Exit::failed, Problem{"SentencePiece's trainer", "a process that ends with a model", end_text,
                                      "run the command again with -v to see SentencePiece's messages"});
  std::string reply = end.result.substr(1);  // the bytes after the ResultKind
  if (end.result[0] == kLongWord) refuse_long_word(training_text, reply);
  if (end.result[0] == kStatus) {
    log_detail("SentencePiece: " + std::string(strip_log_prefix(reply)));
    if (reply.find("[!sentences_.empty()]") != reply.npos) refuse_empty_alphabet();
    refuse(options, reply);
  }
  training_text.log_reserved_text();
  if (messages.num_loaded_lines() && *messages.num_loaded_lines() != training_text.num_lines())
    log_warning(str("SentencePiece's trainer used ", with_commas(static_cast<int64_t>(*messages.num_loaded_lines())),
                    " of ", count_with_commas(training_text.num_lines(), "line")));
  if (messages.coverage() && *messages.coverage() < 1)
    log_info(str("the vocabulary has pieces for ", count_of(messages.alphabet_size().value_or(0), "character"), ", ",
                 fixed_decimal(100 * *messages.coverage(), 3), " % of the text; the other characters are ",
                 options.byte_fallback ? "spelt in bytes" : "unknown", " (--character-coverage)"));
  return reply;
}

}  // namespace mh::text
