/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that the planner in a browser is built without. Code that it links refers to them:
 * tokenizers, checksums of checkpoints, random numbers and processes, which no plan uses. A call of
 * one of them ends the planner with its name.
 */
mergeInto(LibraryManager.library, Object.fromEntries([
  'ech_bpe_check_gpt2', 'ech_bpe_create', 'ech_bpe_decode', 'ech_bpe_destroy', 'ech_bpe_finish',
  'ech_bpe_put', 'ech_bpe_put_end', 'ech_bpe_read_gpt2', 'ech_bpe_read_json',
  'ech_bpe_read_sentencepiece', 'ech_bpe_read_sides', 'ech_random_words', 'ech_random_word',
  'ech_random_normals', 'XXH3_freeState', 'XXH3_createState', 'XXH3_128bits_update',
  'XXH3_128bits_reset', 'XXH3_128bits_digest', 'XXH3_128bits', 'ech_life_space'
].map(name => [name, new Function(`abort("the planner is built without ${name}")`)])));
