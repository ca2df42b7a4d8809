"""Mixers by the tag of their options."""

from tfm.catalogue.mixers.clustered import reformer, routing, sinkhorn
from tfm.catalogue.mixers.convolution import dynamicconv, lightconv, textcnn
from tfm.catalogue.mixers.fewer_keys import compressed, linformer, nystrom, spatial_reduction, stripes
from tfm.catalogue.mixers.kernels import aft, channel_groups, delta, linear, performer, xca
from tfm.catalogue.mixers.recurrent import gru, lstm
from tfm.catalogue.mixers.static import fnet, gmlp, synthesizer
from tfm.interfaces import Mixer
from tfm.mixers import softmax
from tfm.options.choices import Options

MIXERS: dict[str, Mixer] = {
    "softmax": softmax.MIXER,
    "compressed": compressed.MIXER,
    "linformer": linformer.MIXER,
    "nystrom": nystrom.MIXER,
    "spatial_reduction": spatial_reduction.MIXER,
    "stripes": stripes.MIXER,
    "reformer": reformer.MIXER,
    "routing": routing.MIXER,
    "sinkhorn": sinkhorn.MIXER,
    "aft": aft.MIXER,
    "channel_groups": channel_groups.MIXER,
    "xca": xca.MIXER,
    "delta": delta.MIXER,
    "linear": linear.MIXER,
    "performer": performer.MIXER,
    "fnet": fnet.MIXER,
    "gmlp": gmlp.MIXER,
    "synthesizer": synthesizer.MIXER,
    "dynamicconv": dynamicconv.MIXER,
    "lightconv": lightconv.MIXER,
    "textcnn": textcnn.MIXER,
    "gru": gru.MIXER,
    "lstm": lstm.MIXER,
}


def mixer_of(options: Options) -> Mixer:
    """The functions of the mixer that options describe."""
    return MIXERS[options.name]
