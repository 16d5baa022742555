// Main function of a fuzz target without libFuzzer: runs every file of a corpus, then mutations of the small ones.
//
//   fuzz-TARGET [--mutations N] [--seed S] FILE|FOLDER…
//
// The same seed gives the same mutations. If a sanitizer report or abort() ends the process, or if the target reads an
// input for more than kInputSeconds, the input is first written to fuzz-TARGET.input in the working folder, and a line
// on stderr has the absolute path; `fuzz-TARGET FILE` repeats the failure.
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/random.h"
#include "fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;
using mh::RandomSequence;

// Maximum size, bytes, of a file that is mutated, unless all files are larger. Larger files test limits of memory or
// time; mutations of them test nothing further.
constexpr size_t kMaxMutatedBytes = 16 << 10;

// Time limit for one input, seconds. An input takes milliseconds, at most seconds. The limit is so high that only a
// target that hangs reaches it, even on a busy machine.
constexpr unsigned kInputSeconds = 120;

std::string input;                           // bytes of the file or mutation that the target is reading
std::string failure_file;                    // absolute path of the file to which a failing input is written
std::string saved_message, unsaved_message;  // lines on stderr after the input was written, and after a failed write
std::string timeout_message;                 // line on stderr if the time limit of an input has passed

bool write_all(int descriptor, const std::string& bytes) {
  return write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}
// Writes the input and a message, only with system calls, since a signal handler calls this function too.
void save_input() {
  const int descriptor = open(failure_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const bool is_saved = descriptor >= 0 && write_all(descriptor, input);
  if (descriptor >= 0) close(descriptor);
  write_all(STDERR_FILENO, is_saved ? saved_message : unsaved_message);
}
void on_abort(int) {
  save_input();
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}
void on_alarm(int) {
  write_all(STDERR_FILENO, timeout_message);
  save_input();
  _exit(1);
}

void run(std::string bytes) {
  input = std::move(bytes);
  alarm(kInputSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  alarm(0);
}

// Returns 2^k - 1, 2^k or 2^k + 1 for a random k below 64: numbers at which readers often fail.
uint64_t boundary_number(RandomSequence& random) {
  const uint64_t power = uint64_t{1} << random.uniform_below(64);
  return power - 1 + random.uniform_below(3);
}

// Returns the position and the length, at most `max_length` bytes, of a random range of the text.
std::pair<size_t, size_t> random_range(const std::string& text, size_t max_length, RandomSequence& random) {
  const size_t position = random.uniform_below(text.size() + 1);
  return {position, random.uniform_below(std::min(max_length, text.size() - position) + 1)};
}

// Changes the text in one of eight ways, at a random position.
void mutate(std::string& text, const std::vector<std::string>& corpus, RandomSequence& random) {
  const auto [position, length] = random_range(text, 64, random);
  switch (random.uniform_below(8)) {
    case 0:  // flips a bit
      if (position < text.size()) text[position] = static_cast<char>(text[position] ^ 1 << random.uniform_below(8));
      break;
    case 1:  // replaces a byte
      if (position < text.size()) text[position] = static_cast<char>(random.uniform_below(256));
      break;
    case 2: {  // overwrites 1, 2, 4 or 8 bytes with a number
      const uint64_t number = boundary_number(random);
      const size_t num_bytes = std::min(size_t{1} << random.uniform_below(4), text.size() - position);
      std::memcpy(text.data() + position, &number, num_bytes);
      break;
    }
    case 3:  // truncates
      text.resize(position);
      break;
    case 4:  // removes a range
      text.erase(position, length);
      break;
    case 5:  // repeats a range
      text.insert(position, text.substr(position, length));
      break;
    case 6: {  // inserts a range of a random file of the corpus
      const std::string& other = corpus[random.uniform_below(corpus.size())];
      const auto [other_position, other_length] = random_range(other, 256, random);
      text.insert(position, other, other_position, other_length);
      break;
    }
    case 7: {  // replaces a decimal number
      const size_t begin = text.find_first_of("0123456789", position);
      if (begin == text.npos) break;
      const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
      text.replace(begin, end - begin, std::to_string(boundary_number(random)));
      break;
    }
  }
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> read_corpus(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) files.emplace_back(path);
    else
      for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // so that a seed determines the mutations
  std::vector<std::string> corpus;
  for (const fs::path& file : files) {
    if (!fs::exists(file))
      std::fprintf(stderr, "fuzz: %s: expected a file or a folder; found neither; correct the path\n", file.c_str()),
          std::exit(2);
    corpus.push_back(read_file(file));
  }
  return corpus;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t num_mutations = 0, seed = 1;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutations" && i + 1 < argc) num_mutations = std::stoull(argv[++i]);
    else if (argument == "--seed" && i + 1 < argc) seed = std::stoull(argv[++i]);
    else paths.push_back(argument);
  }
  const std::vector<std::string> corpus = read_corpus(paths);
  if (corpus.empty()) {
    std::fprintf(stderr, "usage: %s [--mutations N] [--seed S] FILE|FOLDER...\n", argv[0]);
    return 2;
  }
  const std::string name = fs::path(argv[0]).filename();
  failure_file = fs::absolute(name + ".input");
  saved_message = "fuzz: the failing input is " + failure_file + "\n";
  unsaved_message = "fuzz: expected to write the failing input to " + failure_file + "; found an error\n";
  timeout_message = "fuzz: " + name + ": expected to read each input within " + std::to_string(kInputSeconds) +
                    " s; found an input that takes longer\n";
  std::signal(SIGABRT, on_abort);
  std::signal(SIGALRM, on_alarm);
  __sanitizer_set_death_callback(save_input);
  const auto start_time = std::chrono::steady_clock::now();
  for (const std::string& bytes : corpus) run(bytes);
  std::vector<std::string> small_inputs;
  std::copy_if(corpus.begin(), corpus.end(), std::back_inserter(small_inputs),
               [](const std::string& bytes) { return bytes.size() <= kMaxMutatedBytes; });
  if (small_inputs.empty()) small_inputs = corpus;
  RandomSequence random(mh::RandomStream(seed, "fuzz"));
  for (uint64_t i = 0; i < num_mutations; ++i) {
    std::string bytes = small_inputs[random.uniform_below(small_inputs.size())];
    for (uint64_t num_changes = 1 + random.uniform_below(4); num_changes > 0; --num_changes)
      mutate(bytes, small_inputs, random);
    run(std::move(bytes));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
  std::printf("%s: %zu files, %llu mutations, %.1f s\n", name.c_str(), corpus.size(),
              static_cast<unsigned long long>(num_mutations), seconds);
}
