"""Codes of languages, against what NLLB-200, mBART and M2M-100 call the same language."""

import pytest

from keras_attention.utils.languages import ISO_639, base_language, by_code


def test_each_code_is_of_one_language():
    codes = ISO_639.replace(",", "").split()
    assert len(codes) == len(set(codes)) == len(by_code()) > 380
    firsts = [group.split()[0] for group in ISO_639.split(", ")]
    assert firsts == sorted(code for code in codes if len(code) == 2)


@pytest.mark.parametrize(
    "codes",
    [
        *("en eng_Latn en_XX eng EN-us", "de deu_Latn de_DE ger", "fa pes_Arab fa_IR per fas"),
        *("ar arb_Arab ar_AR ara", "zh zho_Hans zh_CN chi", "et est_Latn et_EE ekk", "sw swh_Latn"),
        *("cs ces_Latn cs_CZ cze", "lv lvs_Latn lv_LV lav", "my mya_Mymr my_MM bur", "sq als_Latn"),
        *("ast ast_Latn", "yue yue_Hant"),
    ],
)
def test_codes_of_one_language(codes):
    expected, *others = codes.split()
    assert [base_language(code) for code in others] == [expected] * len(others)
