#include "common/extract.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/error.h"

static void
finds_the_code(void **state)
{
    static const struct {
        const char *text, *code; /* code NULL: refused */
        enum extract_from from;
        bool is_truncated;
    } rows[] = {
        { "import torch\n", "import torch\n", EXTRACT_TEXT, false },
        { "Here:\n```python\nx = 1\n```\nDone.", "x = 1\n", EXTRACT_TAGGED_FENCE, false },
        { "```triton\na\n```\n```py\nb\n```\n", "b\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\na\n```\n```bash\nls\n```\n", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "```\na\n```\n```cpp\nb\n```\n", "b\n", EXTRACT_FENCE, false },
        { "```\na\n```\n", "a\n", EXTRACT_FENCE, false },
        { "```Python\na\n```\n", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "``` python title=x\na\n```\n", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "```pythonic\na\n```\n", "a\n", EXTRACT_FENCE, false },
        { "```python\na\nb", "a\nb", EXTRACT_TAGGED_FENCE, true },
        { "```python\na\n```\n```python\nb = 2\n", "b = 2\n", EXTRACT_TAGGED_FENCE, true },
        { "~~~python\na\n```\n~~~\n", "a\n```\n", EXTRACT_TAGGED_FENCE, false },
        { "````python\na\n```\nb\n````\n", "a\n```\nb\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\na\n`````  \nb", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\r\na\r\n```\r\n", "a\r\n", EXTRACT_TAGGED_FENCE, false },
        /* Fences in lists. */
        { "  1. so:\n   ```python\n   a\n   ```\n", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "1. so:\n\t```python\n\tif a:\n\t\tb\n\n\tc\n\t```\n", "if a:\n\tb\n\nc\n", EXTRACT_TAGGED_FENCE,
          false },
        { "- so:\n  ```python\na\n  b\n  ```\n", "a\n  b\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\n    # x\n  if a:\n    b\n```\n", "  # x\nif a:\n  b\n", EXTRACT_TAGGED_FENCE, false },
        { "- so:\n  ```python\n  a = '''\nb '''\n  ```\n", "a = '''\nb '''\n", EXTRACT_TAGGED_FENCE, false },
        /* Of several blocks the one with the class. */
        { "```python\nclass ModelNew(M):\n    a\n```\nUse:\n```python\nm = ModelNew()\n```\n",
          "class ModelNew(M):\n    a\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\nclass ModelNew:\n    a\n```\n```py\nclass ModelNew :\n    b\n```\n```py\nModelNew == "
          "1\n```",
          "class ModelNew :\n    b\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\nModelNew = f()\n```\n```python\nclass ModelNewer(ModelNew):\n    a\n```\n",
          "ModelNew = f()\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\nclass ModelNew:\n    a\n```\n```python\nif x:\n    class ModelNew:\n        b\n```\n",
          "class ModelNew:\n    a\n", EXTRACT_TAGGED_FENCE, false },
        { "- x\n  ```python\n  class ModelNew:\n      a\n  ```\n- y\n  ```python\n  ModelNew()\n  ```\n",
          "class ModelNew:\n    a\n", EXTRACT_TAGGED_FENCE, false },
        { "```\nclass ModelNew(M):\n    a\n```\n```\nModelNew()\n```\n", "class ModelNew(M):\n    a\n",
          EXTRACT_FENCE, false },
        { "```\nclass ModelNew(M):\n    a\n```\n```python\nb\n```\n", "b\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\ns = '''\n```python\n'''\n```\n", "s = '''\n```python\n'''\n", EXTRACT_TAGGED_FENCE,
          false },
        { "use ```x``` here", "use ```x``` here", EXTRACT_TEXT, false },
        { "```x``` is code\nrest", "```x``` is code\nrest", EXTRACT_TEXT, false },
        { "<think>```python\nold\n```</think>\n```python\nnew\n```", "new\n", EXTRACT_TAGGED_FENCE, false },
        { "<think>```python\nold\n```\n</think>plain = 1", "plain = 1", EXTRACT_TEXT, false },
        { "<think>not yet\n```python\na\n```\nbut", "a\n", EXTRACT_TAGGED_FENCE, true },
        { " \n<think>x", " \n<think>x", EXTRACT_TEXT, true },
        { "</think>\n<think>x", "\n<think>x", EXTRACT_TEXT, true },
        { "a</think>b</think>c = 3", "c = 3", EXTRACT_TEXT, false },
        { "``\nx\n``\n", "``\nx\n``\n", EXTRACT_TEXT, false },
        /* Decoded with special tokens. */
        { "```python\na\n```<|im_end|>", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\na\n``` <|im_end|>\n<|endoftext|>\n", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\na\n```<|im_end|>\n<|im_start|>user\nGo on.", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\na\n<|eot_id|>", "a\n", EXTRACT_TAGGED_FENCE, true },
        { "```python\na\n```</s>", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\na\n```<｜end▁of▁sentence｜>", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "</think>x = 1\n<|im_end|><|endoftext|>", "x = 1\n", EXTRACT_TEXT, false },
        { "```python\ns = '<|im_end|>'\n```", "s = '<|im_end|>'\n", EXTRACT_TAGGED_FENCE, false },
        { "```python\na\n```<|other|>", "a\n```<|other|>", EXTRACT_TAGGED_FENCE, true },
        { "<|im_start|>assistant\n```python\na\n```<|im_end|>", "a\n", EXTRACT_TAGGED_FENCE, false },
        { "<|start_header_id|>assistant<|end_header_id|>\n\nx = 1\n<|eot_id|>", "\n\nx = 1\n", EXTRACT_TEXT,
          false },
        /* Harmony: reasoning and answer are channels. */
        { "<|channel|>analysis<|message|>```python\nold\n```<|end|><|start|>assistant<|channel|>final"
          "<|message|>```python\na\n```<|return|>",
          "a\n", EXTRACT_TAGGED_FENCE, false },
        { "<|channel|>final<|message|>x = 1\n<|return|>", "x = 1\n", EXTRACT_TEXT, false },
        { "<|channel|>analysis<|message|>not yet", "<|channel|>analysis<|message|>not yet", EXTRACT_TEXT,
          true },
        { "[THINK]old = 1[/THINK]x = 1", "x = 1", EXTRACT_TEXT, false },
        { "<|im_end|>\n", NULL, EXTRACT_TEXT, false },
        { "", NULL, EXTRACT_TEXT, false },
        { " \n\t\r\n", NULL, EXTRACT_TEXT, false },
        { "x = 1\n</think>\n", NULL, EXTRACT_TEXT, false },
        { "```python\n```\n", NULL, EXTRACT_TAGGED_FENCE, false },
        { "```python", NULL, EXTRACT_TAGGED_FENCE, true },
        { "x\n```python\n  \n", NULL, EXTRACT_TAGGED_FENCE, true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct extract found;
        int code = extract_code(rows[i].text, strlen(rows[i].text), "ModelNew", &found);
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        if ((code == 0) != (rows[i].code != NULL))
            fail_msg("row %zu: returned %d", i, code);
        if (rows[i].code && (extract_append(&found, &text) != 0 || strcmp(text.data, rows[i].code) != 0))
            fail_msg("row %zu: found \"%s\"", i, text.data);
        assert_int_equal(found.from, rows[i].from);
        assert_int_equal(found.is_truncated, rows[i].is_truncated);
    }
}

static void
nuls_are_bytes_like_others(void **state)
{
    static const char text[] = "```python\na\0b\n```\n";
    struct extract found;
    (void)state;
    assert_int_equal(extract_code(text, sizeof(text) - 1, NULL, &found), 0);
    assert_int_equal(found.size, 4);
    assert_memory_equal(found.code, "a\0b\n", 4);
}

static void
the_bound_is_on_the_code(void **state)
{
    struct extract found;
    const size_t size = EXTRACT_MAX + 100;
    (void)state;
    AUTO_FREE char *text = malloc(size);
    assert_non_null(text);
    memset(text, 'x', size);
    assert_int_equal(extract_code(text, EXTRACT_MAX, NULL, &found), 0);
    assert_int_equal(extract_code(text, EXTRACT_MAX + 1, NULL, &found), ERR_INPUT);
    memcpy(text + EXTRACT_MAX, "\n```py\nshort\n```", 17);
    assert_int_equal(extract_code(text, EXTRACT_MAX + 16, NULL, &found), 0);
    assert_int_equal(found.size, 6);
}

static void
no_text_at_all(void **state)
{
    struct extract found;
    (void)state;
    assert_int_equal(extract_code(NULL, 0, NULL, &found), ERR_INPUT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_code),
        cmocka_unit_test(nuls_are_bytes_like_others),
        cmocka_unit_test(the_bound_is_on_the_code),
        cmocka_unit_test(no_text_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
