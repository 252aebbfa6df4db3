if df -k /dev/shm | grep -q '^shm *65536 '; then
  printf '\nNOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be insufficient for %s.\n' "$NVIDIA_PRODUCT_NAME"
  printf '   docker run --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 ...\n'
fi
