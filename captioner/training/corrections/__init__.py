"""Corrections of a few photos, learnt beside the weights; `captioner.teaching` has them learnt."""
