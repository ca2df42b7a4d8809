"""What a compiled program sends between devices."""

import pytest
from small import job_of

import tfm
from train.planning import hlo
from train.training.job import compile_step

PROGRAM = """HloModule jit_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%gather_begins (p: bf16[4,8]) -> bf16[16,8] {
  %p = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %g.1 = bf16[16,8]{1,0:T(8,128)(2,1)S(1)} all-gather(%p), channel_id=7, replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}
}

%gather_ends (q: bf16[4,8]) -> bf16[16,8] {
  %q = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %g.2 = bf16[16,8]{1,0:T(8,128)(2,1)S(1)} all-gather(%q), channel_id=7, replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}
}

%inner_body (s: (s32[], f32[64])) -> (s32[], f32[64]) {
  %s = (s32[], f32[64]) parameter(0)
  %x = f32[64]{0} get-tuple-element(%s), index=1
  %r = f32[64]{0} all-reduce(%x), channel_id=2, replica_groups=[4,2]<=[8], use_global_device_ids=true, to_apply=%add
  ROOT %t = (s32[], f32[64]) tuple(%s, %r)
}

%inner_condition (s.1: (s32[], f32[64])) -> pred[] {
  %limit = s32[]{:T(128)} constant(5)
  %s.1 = (s32[], f32[64]) parameter(0)
  ROOT %less = pred[] compare(%s.1, %limit), direction=LT
}

%body (c: (s32[], f32[64])) -> (s32[], f32[64]) {
  %c = (s32[], f32[64]) parameter(0)
  %f.1 = bf16[16,8]{1,0} fusion(%c), kind=kCustom, calls=%gather_begins
  %f.2 = bf16[16,8]{1,0} fusion(%f.1), kind=kCustom, calls=%gather_ends
  ROOT %w.2 = (s32[], /*index=1*/f32[64]) while(%c), condition=%inner_condition, body=%inner_body
}

%condition (c.1: (s32[], f32[64])) -> pred[] {
  %c.1 = (s32[], f32[64]) parameter(0)
  ROOT %true = pred[] constant(true)
}

ENTRY %main (p0: f32[64], p1: f32[64]) -> f32[] {
  %p0 = f32[64]{0} parameter(0)
  %w = (s32[], f32[64]) while(%p0), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"},"x":[]}
  %start = (f32[8]{0}, f32[64]{0}) all-gather-start(%p0), channel_id=9, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %done = f32[64]{0} all-gather-done(%start)
  %two = (f32[64]{0}, f32[]) all-reduce(%done, %p1), channel_id=10, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
  %piece = f32[8]{0} reduce-scatter(%done), channel_id=11, replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%add
  ROOT %moved = (f32[8]{0}, f32[8]{0}, u32[]) collective-permute(%piece), channel_id=12, source_target_pairs={{0,1},{1,0}}
}
"""  # noqa: E501


def test_collectives_of_a_program():
    """Loops by what the compiler notes (3) and by their condition (5); one channel counts once; bytes on a ring of the
    group's size."""
    traffic = hlo.collectives(PROGRAM)
    assert {kind: collectives.count for kind, collectives in traffic.items()} == {
        "all-gather": 3 + 1,
        "all-reduce": 3 * 5 + 1,
        "reduce-scatter": 1,
        "collective-permute": 1,
    }
    assert traffic["all-gather"].sent == pytest.approx(3 * (16 * 8 * 2) * 3 / 4 + (64 * 4) * 7 / 8)
    assert traffic["all-reduce"].sent == pytest.approx(15 * (64 * 4) * 2 / 2 + (65 * 4) * 2 / 2)
    assert traffic["reduce-scatter"].sent == pytest.approx((64 * 4) * 7 / 8)


@pytest.mark.slow
def test_collectives_of_a_compiled_step():
    """Over data alone, gradients are summed once, but that of the token table twice: as what is read and as what is
    written. In bfloat16, which some processors choose, a CPU sums biases in eight rows."""
    job = job_of("--mesh.data=8", "--model.dropout=0", "--model.dtype=float32")
    traffic = hlo.collectives(compile_step(job).as_text())
    assert set(traffic) == {"all-reduce"}
    assert traffic["all-reduce"].sent / (2 * 7 / 8) == pytest.approx(
        4 * tfm.count_params(job.specs) + 4 * 64 * 256, rel=1e-3
    )
