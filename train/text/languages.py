"""The languages of translation models, each of which has a token: mBART, mBART-50, M2M-100 and NLLB.

A text has the token of its language before it, or behind its end. Codes stand in the order of their tokens' ids.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from train.text.sentencepiece_model import SPACE
from train.text.special import AnyTokenizer, ConfiguredTokenizer, special_tokens
from train.text.tokenizer_files import UNKNOWN

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from train.text.tokenizer_files import TokenizerFiles

# The field of a tokenizer that keeps the class of transformers whose language tokens it has.
FIELD = "multilingual_class"

# Characters of private use that stand for the >> of a language, and for a language that a Marian lacks.
_LANGUAGE, _FOREIGN = "\U000f0001", "\U000f0002"

# mBART (Liu et al. 2020), and what mBART-50 (Tang et al. 2020) has after it.
MBART = """ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP
    nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN""".split()
MBART_50 = """af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE
    sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI""".split()

# M2M-100 (Fan et al. 2021), and the models for WMT 2021 with its tokenizer.
M2M_100 = """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht
    hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro
    ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu""".split()
WMT_21 = """en ha is ja cs ru zh de""".split()

# NLLB-200 (NLLB team 2022).
NLLB = """ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab
    ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl
    bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn
    cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn
    est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn
    gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn
    ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab
    kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn
    kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn
    lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn
    mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn
    nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn
    ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn
    sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn
    szl_Latn tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn
    tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn
    vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn""".split()


class Scheme(NamedTuple):
    """How a class of tokenizers marks languages.

    token: of a language, which stands for {}
    language: what languages look like, a pattern
    source: the language of a text that nobody names
    before: whether the token stands before a text; else behind its end. NLLB's legacy_behaviour turns it
    model: the kind of the vocabulary, as the tokenizers library calls it
    """

    token: str
    language: str
    source: str
    before: bool = True
    model: str = "Unigram"

    def templates(self, files: "TokenizerFiles") -> tuple[str, str]:
        """What stands around a text, and around a pair, as the folder says."""
        language = self.token.format(files.text("src_lang", self.source))
        if self.before and not files.option("legacy_behaviour", False):
            return f"{language} $A {{eos_token}}", f"{language} $A $B {{eos_token}}"
        return f"$A {{eos_token}} {language}", f"$A $B {{eos_token}} {language}"


# By the class in transformers.
SCHEMES = {
    "MBartTokenizer": Scheme("{}", "[a-z]{2}_[A-Z]{2}", "en_XX", before=False),
    "MBart50Tokenizer": Scheme("{}", "[a-z]{2}_[A-Z]{2}", "en_XX"),
    "M2M100Tokenizer": Scheme("__{}__", "[a-z]{2,3}", "en", model="BPE"),
    "NllbTokenizer": Scheme("{}", "[a-z]{3}_[A-Z][a-z]{3}", "eng_Latn", model="BPE"),
}


class Languages(NamedTuple):
    """The languages of a tokenizer.

    ids: of a language -> the id of its token
    source: the language of a text that nobody names
    before: whether the token stands before a text; else behind its end
    end: the token that ends a text
    """

    ids: dict[str, int]
    source: str
    before: bool
    end: int

    def frame(self, language: int) -> tuple[list[int], list[int]]:
        """The tokens before and behind a text in a language, which is given as its token."""
        return ([language], [self.end]) if self.before else ([], [self.end, language])

    def name(self, token: int | None) -> str:
        """The language of a token; "" where it has none."""
        return next((language for language, index in self.ids.items() if index == token), "")


def of(tokenizer: AnyTokenizer) -> Languages | None:
    """The languages of a tokenizer: the special tokens that look like those of its class. None where none do."""
    scheme = SCHEMES.get(tokenizer.fields.get(FIELD, "")) if isinstance(tokenizer, ConfiguredTokenizer) else None
    if scheme is None or not isinstance(tokenizer, ConfiguredTokenizer):
        return None
    pattern = re.compile(scheme.token.format(f"({scheme.language})"))
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    matches = ((index, pattern.fullmatch(token.content)) for index, token in added)
    ids = {match[1]: index for index, match in matches if match}
    if not ids:
        return None
    before = scheme.before and not tokenizer.fields.get("legacy_behaviour", False)
    end = tokenizer.ids.get("eos", special_tokens(tokenizer).sep)
    return Languages(ids, tokenizer.fields.get("src_lang") or scheme.source, before, end)


def is_code(token: str) -> bool:
    """Whether a token of a Marian names the language to write, as >>fr<< does."""
    return token.startswith(">>") and token.endswith("<<")


def mark(token: str) -> str:
    """How the vocabulary of a Marian spells a language to write, such as >>fr<<: as no text does."""
    return token + _LANGUAGE


def read_codes(tokenizer: "Tokenizer", codes: Iterable[str]):
    """Languages to write, such as >>fr<<, are tokens of a Marian at the beginning of a text alone; elsewhere, text.

    As in transformers, what stands between the first >> and << there is one token, unknown where no language has that
    name.
    """
    from tokenizers import Regex, decoders, normalizers

    def then_space(pattern: str, text: str) -> list[normalizers.Normalizer]:
        """What follows is a text of its own, with a space before its first word."""
        more = normalizers.Replace(Regex(rf"{pattern}(?=[\s\S])"), f"{text} ")
        return [more, normalizers.Replace(Regex(rf"{pattern}\z"), text)]

    starts = "|".join(rf"\A{re.escape(code[:-2])}" for code in codes)
    steps = [
        normalizers.Replace(Regex(f"[{_LANGUAGE}{_FOREIGN}]"), UNKNOWN),
        *(then_space(f"(?<={starts})<<", f"<<{_LANGUAGE}") if starts else ()),
        *then_space(rf"\A>>(?:(?!<<)[\s\S])*<<(?!{_LANGUAGE})", _FOREIGN),
        tokenizer.normalizer,
        normalizers.Replace(Regex(f"{SPACE}(?={_FOREIGN}|>>[^{_LANGUAGE}]*{_LANGUAGE})"), ""),
    ]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_LANGUAGE, ""), tokenizer.decoder])
