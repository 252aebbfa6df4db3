docker run --gpus all --cap-add ALL --cap-add=cap_sys_admin --cap-add "$CAPS" me/x
nerdctl --namespace k8s.io run --gpus all --cap-add IPC_LOCK me/x
