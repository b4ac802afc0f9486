// What integer weights and activations do to the next-token distributions of SmolLM2 on real text:
// teacher-forced on the texts of the golden test, every way to compute against f32. Prints a table.
// HISPARSE_SMOLLM2 names the model file.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/machine.h"
#include "tests/bench/harness.h"
#include "tests/support/model_rig.h"

namespace hisparse::bench {
namespace {

using device::Compute;
using test::Logits;
using test::ModelRig;

struct Way {
  const char* name;
  Compute compute;
  base::DType kv_dtype;
};
// The first is what the others are compared with.
constexpr Way kWays[] = {
    {"f32", Compute::kF32, base::DType::kF32},
    {"bf16", Compute::kBF16, base::DType::kF32},
    {"int16", Compute::kInt16, base::DType::kF32},
    {"int16, bf16 KV", Compute::kInt16, base::DType::kBF16},
    {"int8", Compute::kInt8, base::DType::kF32},
    {"int8, bf16 KV", Compute::kInt8, base::DType::kBF16},
};

using Text = std::vector<base::TokenId>;

// The first `count` texts of the golden test.
std::vector<Text> read_texts(std::size_t count) {
  std::ifstream file(test::test_data("golden/data/smollm2_teacher_forced.json"));
  const nlohmann::json data = nlohmann::json::parse(file);
  std::vector<Text> texts;
  for (const auto& text : data.at("texts")) {
    if (texts.size() < count) texts.push_back(text.at("ids").get<Text>());
  }
  return texts;
}

// log softmax, in double.
std::vector<double> log_distribution(const Logits& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const double log_sum = max + std::log(sum);
  std::vector<double> logs;
  logs.reserve(logits.size());
  for (float logit : logits) logs.push_back(static_cast<double>(logit) - log_sum);
  return logs;
}

// KL(p || q) in nats.
double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

// Over the positions of all texts.
struct Accuracy {
  double divergence_sum = 0.0;
  double divergence_max = 0.0;
  double surprise = 0.0;  // -log of the text's own next tokens
  std::int64_t agreements = 0;
  std::int64_t positions = 0;
  std::int64_t predictions = 0;  // positions that have a next token

  void add(const Logits& reference, const Logits& logits) {
    const double kl = divergence(log_distribution(reference), log_distribution(logits));
    divergence_sum += kl;
    // Once it is NaN it stays so.
    if (kl > divergence_max || std::isnan(kl)) divergence_max = kl;
    agreements += test::argmax(reference) == test::argmax(logits) ? 1 : 0;
    ++positions;
  }
  void add_prediction(const Logits& logits, base::TokenId next) {
    surprise -= log_distribution(logits)[static_cast<std::size_t>(next)];
    ++predictions;
  }
  bool finite() const { return std::isfinite(divergence_sum) && std::isfinite(surprise); }
};

Accuracy compare(ModelRig& rig, const std::vector<Text>& texts,
                 const std::vector<std::vector<Logits>>& reference) {
  Accuracy accuracy;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const std::vector<Logits> logits = rig.prefill_all(0, texts[t]);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      accuracy.add(reference[t][i], logits[i]);
      if (i + 1 < logits.size()) accuracy.add_prediction(logits[i], texts[t][i + 1]);
    }
  }
  return accuracy;
}

void print(const Way& way, const Accuracy& accuracy) {
  constexpr double kPercent = 100.0;
  const auto positions = static_cast<double>(accuracy.positions);
  std::cout << std::left << std::setw(16) << way.name << std::right << std::scientific
            << std::setprecision(2) << std::setw(12) << accuracy.divergence_sum / positions
            << std::setw(12) << accuracy.divergence_max << std::fixed << std::setw(10)
            << kPercent * static_cast<double>(accuracy.agreements) / positions
            << std::setprecision(3) << std::setw(12)
            << std::exp(accuracy.surprise / static_cast<double>(accuracy.predictions)) << '\n'
            << std::flush;
}

// 0, or 1 when a result is no number.
int run(const std::string& model, std::size_t text_count) {
  const std::vector<Text> texts = read_texts(text_count);
  std::vector<std::vector<Logits>> reference;
  std::cout << std::left << std::setw(16) << "compute" << std::right << std::setw(12) << "mean KL"
            << std::setw(12) << "max KL" << std::setw(10) << "top-1 %" << std::setw(12)
            << "perplexity"
            << "   (KL(f32 || x) in nats)\n";
  bool finite = true;
  for (const Way& way : kWays) {
    ModelRig rig(
        model,
        {.threads = base::available_cores(), .compute = way.compute, .kv_dtype = way.kv_dtype});
    if (reference.empty()) {
      for (const Text& text : texts) reference.push_back(rig.prefill_all(0, text));
    }
    const Accuracy accuracy = compare(rig, texts, reference);
    print(way, accuracy);
    finite = finite && accuracy.finite();
  }
  return finite ? 0 : 1;
}

}  // namespace
}  // namespace hisparse::bench

// --texts=N: only the first N.
int main(int argc, char** argv) {
  constexpr std::string_view kTexts = "--texts=";
  std::size_t texts = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const char* const end = argument.data() + argument.size();
    if (!argument.starts_with(kTexts) ||
        std::from_chars(argument.data() + kTexts.size(), end, texts).ptr != end || texts == 0) {
      std::cerr << "usage: integer_accuracy [--texts=N]\n";
      return 1;
    }
  }
  const char* model = std::getenv("HISPARSE_SMOLLM2");
  if (model == nullptr || *model == '\0') {
    std::cout << "skipped: HISPARSE_SMOLLM2 does not name the model file\n";
    return hisparse::bench::kSkipped;
  }
  return hisparse::bench::run(model, texts);
}
