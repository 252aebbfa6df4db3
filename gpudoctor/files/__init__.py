"""The files that gpudoctor writes and reads again: snapshots, reports, bundles, baselines."""
