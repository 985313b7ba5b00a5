/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest complete run file.
 */
#ifndef ECH_TESTS_CONFIG_SAMPLE_RUN_H
#define ECH_TESTS_CONFIG_SAMPLE_RUN_H

static const char sample_run[] = "model:\n"
                                 "  architecture: gpt2\n"
                                 "  hidden_size: 64\n"
                                 "  num_hidden_layers: 2\n"
                                 "  num_attention_heads: 4\n"
                                 "data:\n"
                                 "  train: corpus/train\n"
                                 "  sequence_length: 32\n"
                                 "training:\n"
                                 "  steps: 10\n"
                                 "  global_batch_size: 8\n"
                                 "optimizer:\n"
                                 "  learning_rate: 1e-3\n"
                                 "log:\n"
                                 "  directory: runs/one\n";

#endif
