"""The data of the experiments: from the folder in DEMUR_DATA_DIR, where it has them; otherwise downloaded once.

The folder may hold these, and the downloads lie in the same places below `download.cache()`:

    mnist/, fashion-mnist/       the four original files, *-ubyte.gz
    cifar10/, cifar100/          the original archive, or data_batch_1.npz ... test_batch.npz, test.npz (see `cifar`)
    svhn/test_32x32.mat          the original file
    uci/NAME/, toy/              see dun.csv, which lists each file with its checksum and its source
"""
