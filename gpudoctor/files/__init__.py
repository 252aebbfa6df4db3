"""The files that gpudoctor writes and reads: snapshots, reports, bundles, baselines."""
